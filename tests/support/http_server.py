"""A server with our HTTP protocol around a small application, and a stream to watch it by."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import uvicorn
from fastapi import FastAPI, Request
from starlette.responses import Response, StreamingResponse

from farthing.server.access.guard import guard
from farthing.server.access.rules import AccessRules
from farthing.server.http.body import read_body
from farthing.server.http.handlers import install_error_handlers
from farthing.server.http.limits import HttpLimits
from farthing.server.http.protocol import LimitedProtocol, make_protocol
from support.raw_http import PATIENCE, RawClient, get, wait_until

QUICK = HttpLimits(
    max_body_bytes=100_000,
    max_header_bytes=8_192,
    max_header_count=20,
    header_timeout=0.5,
    body_timeout=0.6,
    keep_alive_timeout=0.8,
    write_timeout=0.5,
    linger_timeout=0.5,
)
"""Bounds that a test can wait for."""


@dataclass
class Seen:
    """What the application has noticed."""

    bodies: list[bytes]
    disconnects: int = 0  # requests whose client left before their end
    served: int = 0


def application(limits: HttpLimits, seen: Seen) -> FastAPI:
    """Routes that read bodies, that do not, and that stream."""
    app = FastAPI(openapi_url=None, redirect_slashes=False)
    install_error_handlers(app)

    @app.get("/hello")
    async def hello() -> dict[str, str]:
        seen.served += 1
        return {"hello": "world"}

    @app.post("/echo")
    async def echo(request: Request) -> Response:
        body = await read_body(request, limits)
        seen.bodies.append(body)
        return Response(body, media_type="application/json")

    @app.post("/plain")
    async def plain(request: Request) -> Response:
        """Knows nothing of our reading of bodies."""
        return Response(await request.body())

    @app.post("/unread")
    async def unread() -> Response:
        return Response(b"not read")

    @app.post("/ignored")
    async def ignored(request: Request) -> Response:
        """Answers when told, whatever comes meanwhile."""
        await asyncio.sleep(0.3)
        return Response(b"late")

    @app.get("/headers")
    async def headers(request: Request) -> dict[str, Any]:
        return {"path": request.url.path, "headers": sorted(request.headers.items())}

    @app.get("/stream")
    async def stream(request: Request) -> Response:
        """Numbers every 10 ms, until the client leaves or a second request ends it."""
        return StreamingResponse(numbers(request), media_type="text/event-stream")

    @app.get("/flood")
    async def flood(request: Request) -> Response:
        """More than any buffer holds."""
        return StreamingResponse(flooding(), media_type="text/plain")

    @app.get("/large")
    async def large() -> Response:
        """More than any buffer holds, at once."""
        return Response(b"x" * 30_000_000)

    async def numbers(request: Request) -> AsyncIterator[bytes]:
        event = asyncio.Event()
        endings[request.query_params["name"]] = event
        number = 0
        try:
            while not event.is_set():
                yield event_bytes(number)
                number += 1
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(event.wait(), 0.01)
            yield b"data: [DONE]\n\n"
        except BaseException:
            seen.disconnects += 1
            raise

    async def flooding() -> AsyncIterator[bytes]:
        try:
            for _ in range(1_000_000):
                yield b"x" * 65_536
        finally:
            seen.disconnects += 1

    endings: dict[str, asyncio.Event] = {}

    @app.get("/end")
    async def end(name: str) -> None:
        endings[name].set()

    return app


class HasPort(Protocol):
    """A server in this process or in another."""

    @property
    def port(self) -> int:
        """Where it listens."""


def event_bytes(number: int) -> bytes:
    """An event of ``/stream``."""
    return b'data: {"number": %d, "text": "\xf0\x9f\x90\xa6"}\n\n' % number


class RunningServer:
    """The server in a thread; leaving the context stops it and waits for its end."""

    def __init__(
        self,
        limits: HttpLimits = QUICK,
        rules: AccessRules | None = None,
        tls: ssl.SSLContext | None = None,
        loop: Literal["uvloop", "asyncio"] = "uvloop",
    ) -> None:
        self.limits = limits
        self.seen = Seen([])
        self.protocol: type[LimitedProtocol] = make_protocol(limits, tls)
        app = application(limits, self.seen)
        self._server = uvicorn.Server(
            uvicorn.Config(
                guard(app, rules or AccessRules()),
                host="127.0.0.1",
                port=0,
                http=self.protocol,
                ws="none",
                loop=loop,
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=5,
            )
        )
        self._thread = threading.Thread(target=self._server.run, name="server")

    @property
    def port(self) -> int:
        """Where it listens."""
        port: int = self._server.servers[0].sockets[0].getsockname()[1]
        return port

    @property
    def open(self) -> int:
        """Connections that it has."""
        return len(self.protocol.all_connections.open)

    def refused(self, reason: str) -> int:
        """How often it has refused for ``reason``."""
        return self.protocol.all_connections.refused[reason]

    def __enter__(self) -> RunningServer:
        self._thread.start()
        wait_until(lambda: self._server.started or not self._thread.is_alive())
        assert self._thread.is_alive()
        return self

    def ask_to_stop(self) -> None:
        """Begins to stop; leaving the context waits for the end."""
        self._server.should_exit = True

    def __exit__(self, *_: object) -> None:
        self.ask_to_stop()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()


@contextlib.contextmanager
def control_stream(server: HasPort, tls: ssl.SSLContext | None = None) -> Iterator[None]:
    """A stream of another client that must go on beside whatever happens inside, every byte of it.

    It must have come further inside of the context, and it ends when told and not before.
    """
    name = f"stream-{threading.get_ident()}-{time.monotonic_ns()}"
    chunks: list[bytes] = []
    with RawClient(server.port, tls) as client:
        client.send(get(f"/stream?name={name}"))
        status, headers = client.head()
        assert status == 200
        assert headers["content-type"].startswith("text/event-stream")
        reader_failed: list[BaseException] = []

        def read() -> None:
            try:
                for chunk in client.chunks():
                    chunks.append(chunk)  # noqa: PERF402 - those before it fails count
            except BaseException as error:
                reader_failed.append(error)

        reader = threading.Thread(target=read)
        reader.start()
        try:
            wait_until(lambda: chunks or reader_failed)
            before = len(chunks)
            yield
            wait_until(lambda: len(chunks) > before + 2 or reader_failed)
        finally:
            with RawClient(server.port, tls) as other:
                ended = other.send(get(f"/end?name={name}")).response().status
            reader.join(PATIENCE)
        assert not reader_failed, reader_failed
        assert ended == 200
        assert not reader.is_alive()
        assert len(chunks) > before + 2
        assert chunks == [*map(event_bytes, range(len(chunks) - 1)), b"data: [DONE]\n\n"]
