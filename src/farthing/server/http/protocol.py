"""HTTP/1.1 over a socket, by uvicorn and httptools, within limits.

One request of a connection is read and answered at a time. Its head goes to the parser up to its
last byte and no further, its body likewise, so that what follows stays outside as bytes until its
turn comes, and reading never stops while a response is under way: that is how a client that leaves
is noticed.
"""

from __future__ import annotations

import asyncio
import ssl
import urllib.parse
from typing import Any

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT

from farthing.openai_protocol.errors import RequestError
from farthing.server.http.connection import NEVER, LimitedConnection, Phase
from farthing.server.http.connections import Connections
from farthing.server.http.cycle import Cycle, OldCycle, ResponseTransport
from farthing.server.http.held_body import HeldBody
from farthing.server.http.limits import HttpLimits
from farthing.server.http.refusals import (
    bad_http,
    body_too_large,
    head_too_large,
    too_many_headers,
)
from farthing.server.http.request_head import body_length, put_host

HEAD_END = b"\r\n\r\n"
MOST_FRAMING = 64 << 10
"""Bytes around the chunks of a body, beyond twice its size: nobody sends it in single bytes."""


def make_protocol(limits: HttpLimits, tls: ssl.SSLContext | None = None) -> type[LimitedProtocol]:
    """The class for ``uvicorn.Config(http=...)``, with one set of connections for all of them.

    With ``tls`` it speaks HTTPS; uvicorn gets none of its own options for that.

    Raises :class:`FarthingError` where the limit of open files leaves no room for connections.
    """
    return type(
        "FarthingProtocol",
        (LimitedProtocol,),
        {"limits": limits, "all_connections": Connections(limits), "tls": tls},
    )


class LimitedProtocol(LimitedConnection):
    """A connection that parses what comes over it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.url = b""
        self._tail = b""  # the last bytes of an unfinished head
        self._body_left: int | None = 0  # None: in chunks
        self._body_bytes = 0
        self._body_raw = 0  # with what is around its chunks
        self._replaying = False

    # Bytes

    def data_received(self, data: bytes) -> None:
        if not self._begun:  # it came with the end of the handshake
            self._waiting += data
            return
        while data:
            try:
                if self._phase in (Phase.IDLE, Phase.HEAD):
                    data = self._read_head(data)
                elif self._phase is Phase.BODY:
                    data = self._read_body(data)
                else:
                    self._keep_waiting(data)
                    return
            except RequestError as error:
                if self._phase is Phase.HEAD:
                    self._refuse(error, error.code or "bad request")
                elif self._phase is Phase.BODY:
                    self._cut(error, error.code or "bad request")
                else:  # behind chunks, see on_message_begin: to be asked again
                    self._stop_listening()

    def _read_head(self, data: bytes) -> bytes:
        if self._phase is Phase.IDLE:
            self._phase = Phase.HEAD
            self.read_deadline = self.loop.time() + self.limits.header_timeout
        if not self._tail:
            before = len(data)
            data = data.lstrip(b"\r\n")  # empty lines before a request are no part of it
            self._head_bytes += before - len(data)
        end = (self._tail + data).find(HEAD_END)
        length = len(data) if end < 0 else end + len(HEAD_END) - len(self._tail)
        room = self.limits.max_header_bytes - self._head_bytes
        self._head_bytes += length
        head = data[: min(length, max(room, 0))]
        self._tail = (self._tail + head)[1 - len(HEAD_END) :] if end < 0 else b""
        self._feed(head)
        if length > room:
            raise head_too_large(self.limits, len(self.url))
        if end >= 0 and self._phase is Phase.HEAD:
            raise bad_http("its head does not end where it should")
        return data[length:]

    def _read_body(self, data: bytes) -> bytes:
        length = len(data) if self._body_left is None else min(self._body_left, len(data))
        if self._body_left is not None:
            self._body_left -= length
        else:
            self._body_raw += length
        self._feed(data[:length])
        if self._phase is Phase.BODY and self._body_raw > 3 * self._body_bytes + MOST_FRAMING:
            raise bad_http("its chunks are too small")
        return data[length:]

    def _keep_waiting(self, data: bytes) -> None:
        """Bytes after a request that is being answered."""
        if self._phase is not Phase.ANSWERING:
            return
        self._waiting += data
        if len(self._waiting) > self.limits.max_header_bytes:
            self._waiting = b""
            self._stop_listening()

    def _feed(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._stay_with_http()
        except httptools.HttpParserCallbackError as error:
            cause = error.__context__
            if isinstance(cause, RequestError):
                raise cause from None
            raise bad_http("its target is none") from None
        except httptools.HttpParserError as error:
            raise bad_http(str(error)) from None

    def _stay_with_http(self) -> None:
        """A client that would rather speak another protocol is answered in this one.

        The parser believes to be done: another one is told of the body that is to come.
        """
        how = b"transfer-encoding: chunked"
        if self._body_left is not None:
            how = b"content-length: %d" % self._body_left
        self.parser = httptools.HttpRequestParser(self)
        self._replaying = True
        self.parser.feed_data(b"POST / HTTP/1.1\r\nhost: -\r\n" + how + HEAD_END)
        self._replaying = False

    # What the parser finds

    def on_message_begin(self) -> None:
        if self._replaying:
            return
        if self._phase is not Phase.HEAD:
            # Behind chunks, in the same bytes: only the parser knows where they end.
            raise bad_http("its turn has not come")
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._phase is not Phase.HEAD or self._replaying:
            return  # those after a body are nobody's: they came too late to be checked
        super().on_header(name, value)
        if len(self.headers) > self.limits.max_header_count:
            raise too_many_headers(self.limits)

    def on_url(self, url: bytes) -> None:
        if not self._replaying:
            super().on_url(url)

    def on_headers_complete(self) -> None:
        if self._phase is not Phase.HEAD:
            return
        method = self.parser.get_method().decode("ascii")
        version = self.parser.get_http_version()
        self._body_left = body_length(method, version, self.headers, self.limits)
        target = httptools.parse_url(self.url)
        self.url = b""
        if target.host is not None:
            put_host(self.headers, target.host, target.port)
        raw_path = target.path or b"/"
        path = urllib.parse.unquote(raw_path.decode("ascii"))
        self.scope["method"] = method
        self.scope["http_version"] = version
        self.scope["path"] = self.root_path + path
        self.scope["raw_path"] = self.root_path.encode("ascii") + raw_path
        self.scope["query_string"] = target.query or b""
        self._head_bytes = self._body_bytes = self._body_raw = 0
        self._body = HeldBody(self.all_connections, self.limits)
        self.scope["state"]["held_body"] = self._body
        self._phase = Phase.BODY
        self.read_deadline = self.loop.time() + self.limits.body_timeout
        old = version == "1.0"
        self.cycle = (OldCycle if old else Cycle)(
            scope=self.scope,
            transport=ResponseTransport(self.transport, self._close_politely),  # type: ignore[arg-type]
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue and not old,
            keep_alive=self.parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )
        if self._all_read:
            self.cycle.leave()
        self._start_asgi_task(self.cycle, self.app)

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if self._body_bytes > self.limits.max_body_bytes:
            raise body_too_large(self.limits)
        if self.cycle.response_complete:
            return
        if self._body is not None:
            self._body.grow(len(body))
        self.cycle.body += body
        if len(self.cycle.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        self.cycle.message_event.set()

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return  # so it seems to the parser
        self.cycle.more_body = False
        self.cycle.message_event.set()
        self._phase = Phase.ANSWERING
        self.read_deadline = NEVER
        if self.cycle.response_complete:
            self._next_request()

    # Responses

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        self._release_body()
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self._phase is Phase.ANSWERING:
            self._next_request()

    def _next_request(self) -> None:
        self._phase = Phase.IDLE
        self.read_deadline = self.loop.time() + self.limits.keep_alive_timeout
        waiting, self._waiting = self._waiting, b""
        if waiting:
            self.data_received(waiting)
        if self._all_read and self._phase in (Phase.IDLE, Phase.HEAD, Phase.BODY):
            self._tell_disconnect()  # of a body that will not come
            self._close()
