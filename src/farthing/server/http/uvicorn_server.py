"""uvicorn without its own ideas of signals and logs."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING

import uvicorn

from farthing.server.http.protocol import LimitedProtocol

if TYPE_CHECKING:
    from starlette.types import ASGIApp

CLOSE_SECONDS = 2.0
"""For connections to close when the server ends."""


class HttpServer(uvicorn.Server):
    """Serves ``app`` on bound sockets until :attr:`should_exit`; signals are its owner's."""

    def __init__(self, app: ASGIApp, protocol: type[LimitedProtocol]) -> None:
        config = uvicorn.Config(
            app,
            http=protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=int(CLOSE_SECONDS),
        )
        super().__init__(config)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leaves them alone."""
        yield

    async def serve_on(self, sockets: Sequence[socket.socket]) -> None:
        """Serves until asked to end."""
        await self.serve(list(sockets))
