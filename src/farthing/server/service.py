"""All that the routes of a server need."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from farthing.openai_protocol.names import ModelNames
from farthing.openai_protocol.served_model import ServedModel, system_fingerprint
from farthing.server.admission.admission import Admission
from farthing.server.body_work import BodyWork
from farthing.server.engine_client import EngineClient
from farthing.server.http.limits import HttpLimits
from farthing.server.life_cycle import LifeCycle
from farthing.server.model_texts import ModelTexts
from farthing.server.observation.metrics import MetricsPage
from farthing.server.observation.observation import Observation
from farthing.server.observation.recent_steps import RecentSteps
from farthing.server.seam.messages import EngineInfo
from farthing.server.streaming.sender import PING_SECONDS
from farthing.server.unknown_fields import UnknownFields

ENCODING_THREADS = 2
"""That read bodies and encode prompts beside the streams: more would only take turns."""

STALL_SECONDS = 30.0


def _encoding_threads() -> Executor:
    return ThreadPoolExecutor(ENCODING_THREADS, thread_name_prefix="farthing-encode")


@dataclass(frozen=True, slots=True)
class LoadedService:
    """The model that a server serves, once it is loaded."""

    served: ServedModel
    info: EngineInfo
    texts: ModelTexts
    admission: Admission


@dataclass(slots=True)
class Service:
    """A server's parts, made by who composes it. :meth:`loaded` is called once, before READY."""

    engine: EngineClient
    life: LifeCycle
    names: ModelNames
    observation: Observation
    metrics_page: MetricsPage
    limits: HttpLimits = field(default_factory=HttpLimits)
    version: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)  # to be shown: no secrets in it
    ping_seconds: float = PING_SECONDS
    request_timeout: float | None = None  # seconds that a prompt may take
    stall_seconds: float = STALL_SECONDS  # without a turn of the engine while work waits
    recent_steps: RecentSteps | None = None  # for tests, whose further questions are answered then
    created: int = field(default_factory=lambda: int(time.time()))  # seconds since 1970
    threads: Executor = field(default_factory=_encoding_threads)
    unknown_fields: UnknownFields = field(default_factory=UnknownFields)
    loaded_model: LoadedService | None = None
    body_work: BodyWork = field(init=False)

    def __post_init__(self) -> None:
        """Has the threads work on bodies."""
        self.body_work = BodyWork(self.threads, ENCODING_THREADS)

    def loaded(self, texts: ModelTexts, info: EngineInfo, admission: Admission) -> None:
        """The model is there: from now on :meth:`model` has it."""
        served = ServedModel(
            self.names,
            texts.encoder,
            info.max_model_len,
            system_fingerprint(info.fingerprint, info.kv_cache_dtype),
            self.request_timeout,
        )
        self.loaded_model = LoadedService(served, info, texts, admission)

    def model(self) -> LoadedService:
        """The model, if requests are taken; else raises :class:`RequestError` (503)."""
        self.life.refuse_unless_ready()
        if self.loaded_model is None:
            raise self.life.unavailable()
        return self.loaded_model

    def refuse_unless_healthy(self) -> None:
        """Raises :class:`RequestError` (503) unless requests are taken and the engine turns."""
        self.life.refuse_unless_ready()
        if self.engine.stalled_for() > self.stall_seconds:
            raise self.life.unavailable()

    def close(self) -> None:
        """Ends the threads, once nothing is served any more."""
        self.threads.shutdown(wait=False, cancel_futures=True)
