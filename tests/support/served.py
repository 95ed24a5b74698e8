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

import uvloop

from farthing.server.access.rules import AccessRules
from farthing.server.admission.limits import QueueLimits
from farthing.server.assembly import Server
from farthing.server.engine_settings import EngineSettings
from farthing.server.http.limits import HttpLimits
from farthing.server.http.uvicorn_server import HttpServer
from farthing.server.life_cycle import Phase
from farthing.server.model_texts import open_model_texts
from farthing.server.observation.observation import Listener
from farthing.server.observation.record import RequestRecord
from farthing.server.service import Service
from farthing.server.settings import ServerSettings
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

    def __init__(
        self, service: Service, records: Records, url: str, loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(url)
        self.service = service
        self.records = records
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
    listeners: Sequence[Listener] = (),
    **settings: Any,
) -> Iterator[Served]:
    """Serves ``model`` until the block ends; ``load`` False: it says that it is loading.

    ``command`` is another program to run as the engine.
    """
    options = {"num_threads": 1, "max_num_seqs": 8, "measure_bandwidth": False, **(engine or {})}
    if queue is not None:
        settings["max_num_queued_reqs"] = queue.max_requests
        settings["max_num_queued_tokens"] = queue.max_prompt_tokens
    asked = ServerSettings(
        engine=EngineSettings(model=model, **options),
        names=NAMES,
        access=rules or AccessRules(),
        http=limits or HttpLimits(),
        **settings,
    )
    over = threading.Event()
    started = threading.Event()
    found: list[Served | BaseException] = []

    async def main() -> None:
        records = Records()
        server = Server(asked, lambda: 0, command, listeners=[records, *listeners])
        http = HttpServer(server.app, server.protocol)
        try:
            if load:
                await _load(server)
            with socket.create_server(("127.0.0.1", 0)) as sock:
                serving = asyncio.create_task(http.serve_on([sock]))
                while not http.started:
                    await asyncio.sleep(0.01)
                url = f"http://127.0.0.1:{sock.getsockname()[1]}"
                found.append(Served(server.service, records, url, asyncio.get_running_loop()))
                started.set()
                await asyncio.to_thread(over.wait)
                http.should_exit = True
                await serving
        finally:
            await server.engine.stop(10)
            server.close()

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
        over.set()
        thread.join()
        if len(found) > 1:
            error = found[1]
            assert isinstance(error, BaseException)
            raise error


async def _load(server: Server) -> None:
    texts = open_model_texts(server.settings.engine.model)
    await server.engine.start()
    server.loaded(texts, await server.engine.ready())
    server.life.enter(Phase.READY)
