"""One request and its response, as the application sees them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from farthing.openai_protocol.errors import RequestError, generation_error
from farthing.server.http.errors import error_bytes, error_headers

Header = tuple[bytes, bytes]


class ResponseTransport:
    """The connection as a response sees it: closed so that the client can read all of it."""

    __slots__ = ("close", "is_closing", "write")

    def __init__(self, transport: asyncio.Transport, close: Callable[[], None]) -> None:
        self.write = transport.write  # the same method: no call is added to a chunk's way
        self.is_closing = transport.is_closing
        self.close = close


class Cycle(RequestResponseCycle):
    """Tells an application that waits for a body that there will be no more of it, and why.

    It gets ``http.disconnect`` although the client is still there, and :func:`cut_of` the request
    is the error to answer with; if it does not answer, that is done here.
    """

    cut: RequestError | None = None

    def cut_off(self, error: RequestError) -> None:
        """No more of the body comes."""
        self.cut = error
        self.scope["state"]["cut"] = error
        self.message_event.set()

    async def receive(self) -> Any:
        """The next event of the request."""
        message = None if self.cut else await super().receive()
        return {"type": "http.disconnect"} if self.cut else message

    async def send_500_response(self) -> None:
        """The answer where the application has failed to give one."""
        error = self.cut or generation_error("internal error")
        named = self.scope.get("state", {}).get("request_id")
        headers = [*error_header_list(error), (b"connection", b"close")]
        if named is not None:
            headers.append((b"x-request-id", str(named).encode()))
        body = error_bytes(error)
        headers.append((b"content-length", str(len(body)).encode()))
        await self.send({"type": "http.response.start", "status": error.status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body, "more_body": False})


def cut_of(scope: Mapping[str, Any]) -> RequestError | None:
    """Why the connection broke the body of a request off, if it was not the client who left."""
    error: RequestError | None = scope.get("state", {}).get("cut")
    return error


def error_header_list(error: RequestError) -> list[Header]:
    """Headers of an error's response, all but its length."""
    pairs = {"content-type": "application/json", **error_headers(error)}
    return [(name.encode(), value.encode()) for name, value in pairs.items()]
