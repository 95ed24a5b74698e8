"""A server over a model, its loop in a thread of the test, its engine a process of its own."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx2
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
from support.event_streams import events_of

T = TypeVar("T")
NAMES = ("tiny", "small/model")
CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"


@dataclass
class Records:
    """What was told of requests, in the order of their ends."""

    all: list[RequestRecord] = field(default_factory=list)

    def started(self, record: RequestRecord) -> None:
        """One has come."""

    def finished(self, record: RequestRecord) -> None:
        """One has ended."""
        self.all.append(record)


class Served:
    """A running server. Its methods are for the test's thread."""

    def __init__(self, service: Service, url: str, loop: asyncio.AbstractEventLoop) -> None:
        self.service = service
        self.url = url
        self.client = httpx2.Client(base_url=url, timeout=60)
        self.records = Records()
        self._loop = loop

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        url = httpx2.URL(self.url)
        return url.host, url.port or 0

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Awaits ``work`` in the server's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def post(self, path: str, body: Any) -> httpx2.Response:
        """The whole response to a body."""
        return self.client.post(path, json=body)

    def answer(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The object of an answer, which must be one."""
        response = self.post(path, body)
        assert response.status_code == 200, response.text
        found: dict[str, Any] = response.json()
        return found

    def stream(self, path: str, body: dict[str, Any]) -> bytes:
        """All bytes of a stream."""
        response = self.post(path, {**body, "stream": True})
        assert response.status_code == 200, response.text
        assert response.headers["content-type"].startswith("text/event-stream")
        return response.content

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


class Streaming:
    """A stream that is read while it goes on, over a socket of its own."""

    def __init__(self, served: Served, path: str, body: dict[str, Any]) -> None:
        raw = json.dumps({**body, "stream": True}).encode()
        self._socket = send_request(served, path, raw)
        self._file = self._socket.makefile("rb")
        self.status = int(self._file.readline().split()[1])
        self.headers: dict[str, str] = {}
        while (line := self._file.readline()) != b"\r\n":
            name, _, value = line.decode().strip().partition(": ")
            self.headers[name.lower()] = value
        self.pieces: list[bytes] = []

    def piece(self) -> bytes:
        """What the server sent at a time; empty at the end of the response."""
        size = int(self._file.readline(), 16)
        piece = self._file.read(size)
        assert self._file.read(2) == b"\r\n"
        if piece:
            self.pieces.append(piece)
        return piece

    def rest(self) -> bytes:
        """All that was sent, once the response has ended."""
        while self.piece():
            pass
        return b"".join(self.pieces)

    def events(self) -> list[dict[str, Any]]:
        """The events so far."""
        return events_of(b"".join(self.pieces))

    def leave(self) -> None:
        """Closes the connection at once, with a reset."""
        self._file.close()
        hang_up(self._socket)


def send_request(
    served: Served, path: str, raw: bytes, *, length: int | None = None
) -> socket.socket:
    """A connection on which a request has been sent; ``length``: what it says of its body."""
    connection = socket.create_connection(served.address, timeout=30)
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(raw) if length is None else length}\r\n\r\n"
    )
    connection.sendall(head.encode() + raw)
    return connection


def hang_up(connection: socket.socket) -> None:
    """Closes with a reset."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    connection.close()
