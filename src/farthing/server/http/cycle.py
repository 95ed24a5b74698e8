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
    _has_left = False
    _has_body = False  # the application, all of it

    def leave(self) -> None:
        """The client sends no more; perhaps it still reads.

        An application that waits for it to leave is told that it has, and can send nothing then;
        one that just answers can do so.
        """
        self._has_left = True
        self.message_event.set()

    async def run_asgi(self, app: Any) -> None:
        """Runs the application to its end, which without an answer is the connection's too."""
        await super().run_asgi(app)
        if self._has_left and not self.response_complete:
            self.transport.close()

    def cut_off(self, error: RequestError) -> None:
        """No more of the body comes."""
        self.cut = error
        self.scope["state"]["cut"] = error
        self.message_event.set()

    async def receive(self) -> Any:
        """The next event of the request."""
        had_body = self._has_body
        if not self.cut and not (self._has_left and had_body):
            message: Any = await super().receive()
            if not self.cut and not (self._has_left and had_body):
                self._has_body = not message.get("more_body", False)
                return message
        self.disconnected = self.disconnected or self._has_left
        return {"type": "http.disconnect"}

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


class OldCycle(Cycle):
    """With a client of HTTP/1.0, which knows no chunks (RFC 9112 sections 6.1, 6.3 and 9.3).

    A body of unknown length ends with the connection. That stays open only if the client asks for
    it and the head tells where the body ends.
    """

    _until_close = False

    async def send(self, message: Any) -> None:
        """The next event of the response."""
        if not self.response_started:
            message = {**message, "headers": self._headers(message)}
        elif self._until_close:
            self.expected_content_length = len(message.get("body", b""))
        await super().send(message)

    def _headers(self, start: Any) -> list[Header]:
        headers = [h for h in start.get("headers", ()) if h[0].lower() != b"transfer-encoding"]
        names = {name.lower() for name, _ in headers}
        bodiless = self.scope["method"] == "HEAD" or start["status"] in (204, 304)
        self._until_close = b"content-length" not in names and not bodiless
        if self._until_close:
            self.keep_alive = self.chunked_encoding = False
        if self.keep_alive and b"connection" not in names:
            headers.append((b"connection", b"keep-alive"))
        return headers


def cut_of(scope: Mapping[str, Any]) -> RequestError | None:
    """Why the connection broke the body of a request off, if it was not the client who left."""
    error: RequestError | None = scope.get("state", {}).get("cut")
    return error


def error_header_list(error: RequestError) -> list[Header]:
    """Headers of an error's response, all but its length."""
    pairs = {"content-type": "application/json", **error_headers(error)}
    return [(name.encode(), value.encode()) for name, value in pairs.items()]
