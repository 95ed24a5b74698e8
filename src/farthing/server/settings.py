"""All that a server is told at its start."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from farthing.server.access.rules import AccessRules
from farthing.server.admission.limits import RateLimits, check_queue
from farthing.server.engine_settings import EngineSettings
from farthing.server.http.limits import HttpLimits
from farthing.server.http.tls import TlsFiles
from farthing.server.observation.logs import LogSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """How a model is served. Times are in seconds.

    ``names``: what clients may call the model, the one it answers with first. Raises
    :class:`InvalidParameterError` for a queue without places.
    """

    engine: EngineSettings
    names: tuple[str, ...]

    host: str = "127.0.0.1"
    port: int = 8000  # 0: a free one
    uds: str | None = None  # path of a Unix socket to listen on instead
    tls: TlsFiles | None = None
    http: HttpLimits = field(default_factory=HttpLimits)
    access: AccessRules = field(default_factory=AccessRules)

    max_num_queued_reqs: int | None = None  # None: what suits the engine
    max_num_queued_tokens: int | None = None
    rates: RateLimits = field(default_factory=RateLimits)
    request_timeout: float | None = None
    ping_interval: float = 15.0  # of streams with nothing to say; 0: never

    shutdown_timeout: float = 60.0
    health_timeout: float = 30.0
    watchdog_timeout: float = 300.0  # 0: never

    logs: LogSettings = field(default_factory=LogSettings)
    metrics_compat: Literal["vllm", "none"] = "vllm"
    otlp_traces_endpoint: str | None = None
    debug_endpoints: bool = False

    def __post_init__(self) -> None:
        """Checks what is known before there is an engine."""
        check_queue(self.max_num_queued_reqs, self.max_num_queued_tokens)

    def shown(self) -> dict[str, Any]:
        """What clients may see of it: no paths, no keys."""
        engine = asdict(self.engine)
        del engine["logs"], engine["measure_bandwidth"]
        for name in ("model", "adapter", "prefix_cache"):
            engine[name] = None if engine[name] is None else engine[name].name
        return {
            **engine,
            "max_num_queued_reqs": self.max_num_queued_reqs,
            "max_num_queued_tokens": self.max_num_queued_tokens,
            "requests_per_minute": self.rates.requests_per_minute,
            "max_concurrent_requests": self.rates.max_concurrent_requests,
            "request_timeout": self.request_timeout,
            "sse_keep_alive_interval": self.ping_interval,
            "shutdown_timeout": self.shutdown_timeout,
            "health_timeout": self.health_timeout,
            "watchdog_timeout": self.watchdog_timeout,
        }
