"""One connection to a server, HTTP/1.1 over an asyncio transport."""

from __future__ import annotations

import asyncio
import time
from typing import cast

import httptools

from farthing.bench.serving.exchange import Exchange


class HttpConnection(asyncio.Protocol):
    """Carries one exchange after the other."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._exchange: Exchange | None = None
        self._over: asyncio.Future[None] | None = None
        self._now = 0.0
        self._to_eof = False  # whether only the end of the connection ends this body
        self.reusable = False

    def converse(self, request: bytes, exchange: Exchange) -> asyncio.Future[None]:
        """Sends ``request``, whole with its head; the future is done when ``exchange`` is over."""
        assert self._transport is not None
        assert self._exchange is None
        self.reusable = False
        self._to_eof = False
        self._parser = httptools.HttpResponseParser(self)
        self._exchange = exchange
        self._over = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._over

    def close(self) -> None:
        """At once; an exchange under way stays unfinished."""
        self.reusable = False
        self._exchange = None
        if self._transport is not None:
            self._transport.abort()

    # Called by the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Notes the time, once for all that came together."""
        self._now = time.perf_counter()
        if self._exchange is None:  # more than the response, or something nobody asked for
            self.close()
            return
        assert self._parser is not None
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._end(f"no response of HTTP: {error or type(error).__name__}")
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the exchange that was under way."""
        self.reusable = False
        self._now = time.perf_counter()
        if exc is None and self._to_eof:
            self._end(None)
        else:
            reason = f": {exc}" if exc is not None else ""
            self._end(f"the connection ended before the response{reason}")
        self._transport = None

    # Called by the parser.

    def on_header(self, name: bytes, value: bytes) -> None:
        """One line of the head."""
        assert self._exchange is not None
        self._exchange.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """The head is whole."""
        exchange, parser = self._exchange, self._parser
        assert exchange is not None
        assert parser is not None
        status = parser.get_status_code()
        if status < 200:  # one that only says that the response is coming
            exchange.headers.clear()
            return
        exchange.status = status
        exchange.headers_at = self._now
        self._to_eof = not ("content-length" in exchange.headers or "chunked" in _coding(exchange))

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        assert self._exchange is not None
        self._exchange.reads.append((self._now, body))

    def on_message_complete(self) -> None:
        """The response is whole."""
        assert self._exchange is not None
        assert self._parser is not None
        if self._exchange.status is not None:
            self.reusable = self._parser.should_keep_alive()
            self._end(None)

    def _end(self, error: str | None) -> None:
        exchange, over = self._exchange, self._over
        self._exchange = None
        if exchange is not None:
            exchange.ended = self._now
            exchange.error = error
        if over is not None and not over.done():
            over.set_result(None)


def _coding(exchange: Exchange) -> str:
    return exchange.headers.get("transfer-encoding", "").lower()
