"""The parts of a server, put together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from farthing.openai_protocol.names import ModelNames
from farthing.server.access.guard import OPEN_PATHS, guard
from farthing.server.admission.admission import Admission
from farthing.server.admission.limits import QueueLimits
from farthing.server.app import create_app
from farthing.server.engine_client import EngineClient
from farthing.server.http.protocol import make_protocol
from farthing.server.life_cycle import LifeCycle, Phase
from farthing.server.model_fetch import FoundModel
from farthing.server.model_texts import ModelTexts
from farthing.server.observation.http_counts import HttpCounts, ObservedApp
from farthing.server.observation.logs import RequestLog, log_prompt
from farthing.server.observation.metrics import MetricsPage
from farthing.server.observation.observation import Listener, Observation
from farthing.server.observation.recent_steps import RecentSteps
from farthing.server.observation.sources import Sources
from farthing.server.observation.step_counts import StepCounts
from farthing.server.observation.tracing import Tracing, start_tracing
from farthing.server.seam.messages import EngineInfo, Stepped
from farthing.server.service import Service
from farthing.server.settings import ServerSettings
from farthing.server.warm_up import warm_up
from farthing.version import installed_version


class Server:
    """Everything but sockets and tasks.

    ``dropped_log_records`` tells how many are in no log; ``listeners`` are told of requests beside
    those that the settings ask for.
    """

    def __init__(
        self,
        settings: ServerSettings,
        dropped_log_records: Callable[[], int],
        engine_command: Sequence[str] | None = None,
        listeners: Sequence[Listener] = (),
    ) -> None:
        self.settings = settings
        engine = replace(settings.engine, logs=replace(settings.logs, prompts=False))
        self.engine = EngineClient(engine, command=engine_command, on_step=self._on_step)
        self.life = LifeCycle(settings.shutdown_timeout, lambda: self.engine.loading)
        tls = None if settings.tls is None else settings.tls.context()
        self.protocol = make_protocol(settings.http, tls)
        self._admission: Admission | None = None
        self._steps = StepCounts()
        self._recent_steps = RecentSteps() if settings.debug_endpoints else None
        self._tracing = _tracing(settings)
        self._observation = _observation(settings, self._tracing, listeners)
        http = HttpCounts()
        version = installed_version() or "unknown"
        self.service = Service(
            engine=self.engine,
            life=self.life,
            names=ModelNames(settings.names),
            observation=self._observation,
            metrics_page=MetricsPage(
                self._sources(version, http, dropped_log_records), settings.metrics_compat
            ),
            limits=settings.http,
            version=version,
            settings=settings.shown(),
            ping_seconds=settings.ping_interval,
            request_timeout=settings.request_timeout,
            stall_seconds=settings.health_timeout,
            recent_steps=self._recent_steps,
        )
        routes = create_app(self.service, open_paths=OPEN_PATHS if settings.access.keys else None)
        self.app = ObservedApp(
            guard(routes, settings.access),
            http,
            paths=[path for path in routes.openapi()["paths"] if "{" not in path],
            log=settings.logs.access,
        )

    def _sources(
        self, version: str, http: HttpCounts, dropped_log_records: Callable[[], int]
    ) -> Sources:
        return Sources(
            model=lambda: self.settings.names[0],
            version=version,
            engine=self.engine,
            life=self.life,
            healthy=self._is_healthy,
            admission=lambda: self._admission,
            connections=lambda: len(self.protocol.all_connections.open),
            dropped_log_records=dropped_log_records,
            http=http,
            requests=self._observation.counts,
            steps=self._steps,
        )

    def _is_healthy(self) -> bool:
        stalled = self.engine.stalled_for() > self.settings.health_timeout
        return self.life.phase is Phase.READY and not stalled

    def _on_step(self, stepped: Stepped) -> None:
        predicted = None if self._admission is None else self._admission.on_step(stepped)
        self._steps.on_step(stepped, predicted)
        if self._recent_steps is not None:
            self._recent_steps.on_step(stepped)

    @property
    def open_requests(self) -> int:
        """Generating requests that have not been answered."""
        return self._observation.load

    def found(self, model: FoundModel) -> None:
        """The model is on this machine; to be called before the engine is started."""
        self.settings = replace(
            self.settings,
            engine=replace(self.settings.engine, model=model.path),
            names=model.names,
        )
        self.engine.settings = replace(self.engine.settings, model=model.path)
        self.service.names = ModelNames(model.names)
        self.service.settings = self.settings.shown()
        self.life.downloaded()

    def loaded(self, texts: ModelTexts, info: EngineInfo) -> None:
        """The model is there."""
        limits = QueueLimits.for_engine(
            max_num_seqs=info.max_num_seqs,
            max_model_len=info.max_model_len,
            max_requests=self.settings.max_num_queued_reqs,
            max_prompt_tokens=self.settings.max_num_queued_tokens,
        )
        self._admission = Admission.for_engine(
            info, limits, rates=self.settings.rates, fair_share=self.settings.engine.fair_share
        )
        self.service.loaded(texts, info, self._admission)

    def warm_up(self) -> None:
        """Takes what is slow the first time off the first request."""
        loaded = self.service.loaded_model
        assert loaded is not None
        warm_up(loaded.served)

    def close(self) -> None:
        """Ends threads and sends what has not been sent."""
        self.service.close()
        if self._tracing is not None:
            self._tracing.close()


def _tracing(settings: ServerSettings) -> Tracing | None:
    if settings.otlp_traces_endpoint is None:
        return None
    return start_tracing(settings.otlp_traces_endpoint, installed_version() or "unknown")


def _observation(
    settings: ServerSettings, tracing: Tracing | None, more: Sequence[Listener]
) -> Observation:
    listeners: list[Listener] = [] if tracing is None else [tracing]
    if settings.logs.requests:
        listeners.append(RequestLog())
    return Observation(*listeners, *more, on_prompt=log_prompt if settings.logs.prompts else None)
