"""A server over a model, its loop in a thread of the test, its engine a process of its own."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import uvicorn
import uvloop
from starlette.types import ASGIApp

from farthing.openai_protocol.names import ModelNames
from farthing.server.access.guard import OPEN_PATHS, guard
from farthing.server.access.rules import AccessRules
from farthing.server.admission.admission import Admission
from farthing.server.admission.limits import QueueLimits
from farthing.server.app import create_app
from farthing.server.engine_client import EngineClient
from farthing.server.engine_settings import EngineSettings
from farthing.server.http.limits import HttpLimits
from farthing.server.http.protocol import make_protocol
from farthing.server.life_cycle import LifeCycle, Phase
from farthing.server.model_texts import open_model_texts
from farthing.server.observation.http_counts import HttpCounts
from farthing.server.observation.metrics import MetricsPage
from farthing.server.observation.observation import Observation
from farthing.server.observation.record import RequestRecord
from farthing.server.observation.sources import Sources
from farthing.server.observation.step_counts import StepCounts
from farthing.server.seam.messages import Stepped
from farthing.server.service import Service
from support.reachable import CHAT, COMPLETIONS, Reachable, Streaming, hang_up, send_request

__all__ = [
    "CHAT",
    "COMPLETIONS",
    "NAMES",
    "Records",
    "Served",
    "Streaming",
    "hang_up",
    "send_request",
    "serve",
]

T = TypeVar("T")
NAMES = ("tiny", "small/model")


@dataclass
class Records:
    """What was told of requests, in the order of their ends."""

    all: list[RequestRecord] = field(default_factory=list)

    def started(self, record: RequestRecord) -> None:
        """One has come."""

    def finished(self, record: RequestRecord) -> None:
        """One has ended."""
        self.all.append(record)


class Served(Reachable):
    """A running server. Its methods are for the test's thread."""

    def __init__(self, service: Service, url: str, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(url)
        self.service = service
        self.records = Records()
        self._loop = loop

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Awaits ``work`` in the server's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def wait_idle(self) -> None:
        """Waits until nothing is in flight; then every block must be accounted for."""
        self.wait(lambda: self.service.engine.in_flight == 0)
        integrity = self.run(self.service.engine.check_integrity())
        assert integrity is not None
        assert integrity.problem is None
        assert (integrity.open_prompts, integrity.held_blocks) == (0, 0)
        model = self.service.model()
        assert model.admission.numbers.waiting_requests == 0
        assert model.admission.numbers.waiting_tokens == 0

    def wait(self, what: Callable[[], bool], seconds: float = 30) -> None:
        """Waits until ``what`` is the case."""
        end = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < end, "it never came to it"
            time.sleep(0.005)


@contextmanager
def serve(
    model: Path,
    *,
    rules: AccessRules | None = None,
    limits: HttpLimits | None = None,
    queue: QueueLimits | None = None,
    command: Sequence[str] | None = None,
    load: bool = True,
    engine: dict[str, Any] | None = None,
    observation: Observation | None = None,
    around: Callable[[ASGIApp], ASGIApp] = lambda app: app,
    **service: Any,
) -> Iterator[Served]:
    """Serves ``model`` until the block ends; ``load`` False: it says that it is loading."""
    options = {"num_threads": 1, "max_num_seqs": 8, "measure_bandwidth": False, **(engine or {})}
    ready: asyncio.Queue[Any] = asyncio.Queue()
    started = threading.Event()
    found: list[Served | BaseException] = []

    async def main() -> None:
        records = Records()
        app = _Composed(
            EngineSettings(model=model, **options),
            command,
            observation or Observation(records),
            limits,
            service,
        )
        if load:
            await app.load(model, queue, options["max_num_seqs"])
        try:
            server = uvicorn.Server(
                uvicorn.Config(
                    around(
                        guard(
                            create_app(app.service, open_paths=OPEN_PATHS if rules else None),
                            rules or AccessRules(),
                        )
                    ),
                    http=make_protocol(app.service.limits),
                    lifespan="off",
                    log_config=None,
                    access_log=False,
                    timeout_graceful_shutdown=5,
                )
            )
            sock = socket.create_server(("127.0.0.1", 0))
            serving = asyncio.create_task(server.serve(sockets=[sock]))
            while not server.started:
                await asyncio.sleep(0.01)
            served = Served(
                app.service,
                f"http://127.0.0.1:{sock.getsockname()[1]}",
                asyncio.get_running_loop(),
            )
            served.records = records
            found.append(served)
            started.set()
            await ready.get()
            server.should_exit = True
            await serving
            sock.close()
        finally:
            await app.close()

    def run() -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(main())
        except BaseException as error:
            found.append(error)
        finally:
            started.set()

    thread = threading.Thread(target=run, name="server")
    thread.start()
    started.wait()
    served = found[0]
    if isinstance(served, BaseException):
        thread.join()
        raise served
    try:
        yield served
    finally:
        served.client.close()
        served._loop.call_soon_threadsafe(ready.put_nowait, None)
        thread.join()
        if len(found) > 1:
            error = found[1]
            assert isinstance(error, BaseException)
            raise error


class _Composed:
    """The parts of a server, as a process would compose them."""

    def __init__(
        self,
        settings: EngineSettings,
        command: Sequence[str] | None,
        observation: Observation,
        limits: HttpLimits | None,
        options: dict[str, Any],
    ) -> None:
        self.admission: Admission | None = None
        self.steps = StepCounts()
        self.engine = EngineClient(settings, command=command, on_step=self._on_step)
        life = LifeCycle(drain_seconds=10)
        sources = Sources(
            model=NAMES[0],
            version="0",
            engine=self.engine,
            life=life,
            healthy=lambda: life.phase is Phase.READY,
            admission=lambda: self.admission,
            connections=lambda: 0,
            dropped_log_records=lambda: 0,
            http=HttpCounts(),
            requests=observation.counts,
            steps=self.steps,
        )
        self.service = Service(
            engine=self.engine,
            life=life,
            names=ModelNames(NAMES),
            observation=observation,
            metrics_page=MetricsPage(sources),
            limits=limits or HttpLimits(),
            version="1.2.3",
            **options,
        )

    def _on_step(self, stepped: Stepped) -> None:
        self.steps.on_step(stepped)
        if self.admission is not None:
            self.admission.on_step(stepped)

    async def load(self, model: Path, queue: QueueLimits | None, max_num_seqs: int) -> None:
        texts = open_model_texts(model)
        await self.engine.start()
        info = await self.engine.ready()
        limits = queue or QueueLimits.for_engine(
            max_num_seqs=max_num_seqs, max_model_len=info.max_model_len
        )
        self.admission = Admission.for_engine(info, limits)
        self.service.loaded(texts, info, self.admission)
        self.service.life.enter(Phase.READY)

    async def close(self) -> None:
        await self.engine.stop(10)
        self.service.close()
