"""What a run of the load generator is asked to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from farthing.bench.serving.answer import Backend
from farthing.bench.serving.arrivals import Arrivals
from farthing.bench.serving.metrics import GOODPUT_METRICS, METRICS
from farthing.bench.serving.random_prompts import PrefixLengths, RandomLengths
from farthing.bench.serving.refusals import RetryPolicy
from farthing.errors import InvalidParameterError

DatasetName = Literal["random", "sharegpt", "custom", "prefix_repetition", "trace"]

ENDPOINTS: dict[Backend, str] = {
    "openai": "/v1/completions",
    "vllm": "/v1/completions",
    "openai-chat": "/v1/chat/completions",
}
DEFAULT_NUM_PROMPTS = 1000
DEFAULT_CUSTOM_OUTPUT_LEN = 256


@dataclass(frozen=True, slots=True)
class Dataset:
    """Where requests come from. ``path`` is for those that are read from a file."""

    name: DatasetName = "random"
    path: Path | None = None
    random: RandomLengths = field(default_factory=RandomLengths)
    prefixes: PrefixLengths = field(default_factory=PrefixLengths)
    output_len: int | None = None  # of files that do not say it, or instead of what ShareGPT says
    oversample: bool = True  # ask again from the beginning where a file has fewer

    def __post_init__(self) -> None:
        reads = self.name in ("sharegpt", "custom", "trace")
        if reads and self.path is None:
            raise InvalidParameterError(f"--dataset-name {self.name}: needs --dataset-path")
        if not reads and self.path is not None:
            raise InvalidParameterError(
                f"--dataset-path {self.path}: {self.name} reads no file; --dataset-name must be "
                "sharegpt, custom or trace"
            )


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """All of a run but where its result goes. Seconds; milliseconds in ``goodput``."""

    base_url: str
    backend: Backend = "openai"
    endpoint: str | None = None  # None: the backend's own
    model: str | None = None  # the name in the API; None: the first that the server lists
    label: str | None = None
    tokenizer: Path | None = None  # of a model on this machine; None: the server's own
    tokenizer_name: str | None = None
    api_key: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    verify_tls: bool = True
    dataset: Dataset = field(default_factory=Dataset)
    num_prompts: int | None = None  # None: all of a trace or file, 1000 of others
    arrivals: Arrivals = field(default_factory=Arrivals)
    self_timed: bool = False  # arrivals as the trace has them
    max_concurrency: int | None = None
    num_warmups: int = 0
    ignore_eos: bool = False
    logprobs: int | None = None
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    request_id_prefix: str = "bench-"
    seed: int = 0
    metrics: tuple[str, ...] = ("ttft", "tpot", "itl", "e2el")
    percentiles: tuple[float, ...] = (99.0,)
    goodput: Mapping[str, float] = field(default_factory=dict)
    ready_timeout: float = 0.0
    request_timeout: float = 21600.0
    retries: RetryPolicy = field(default_factory=RetryPolicy)
    check_text: bool = False

    def __post_init__(self) -> None:
        for name in self.metrics:
            _check_name("--percentile-metrics", name, METRICS)
        for percentile in self.percentiles:
            if not 0 <= percentile <= 100:
                raise InvalidParameterError(
                    f"--metric-percentiles {percentile:g}: must be from 0 to 100"
                )
        for name, most in self.goodput.items():
            _check_name("--goodput", name, GOODPUT_METRICS)
            if not most >= 0:
                raise InvalidParameterError(f"--goodput {name}:{most}: must be milliseconds from 0")
        wanted = ENDPOINTS[self.backend].removeprefix("/v1")
        if not self.path.startswith("/") or not self.path.endswith(wanted):
            raise InvalidParameterError(
                f"--endpoint {self.path}: --backend {self.backend} needs one that begins with / "
                f"and ends with {wanted}"
            )
        if self.self_timed and self.dataset.name != "trace":
            raise InvalidParameterError("--self-timed: only a trace has times of its own")
        if self.extra_body.get("stream", True) is not True:
            raise InvalidParameterError("--extra-body: stream must stay true, tokens are timed")

    @property
    def path(self) -> str:
        """The path that is posted to."""
        return ENDPOINTS[self.backend] if self.endpoint is None else self.endpoint

    @property
    def chat(self) -> bool:
        """Whether answers have the form of chat completions."""
        return self.backend == "openai-chat"


def _check_name(option: str, name: str, names: tuple[str, ...]) -> None:
    if name not in names:
        raise InvalidParameterError(f"{option} {name!r}: must be one of {', '.join(names)}")
