"""A connection with its phases and deadlines: whom it refuses, how it ends, who is told."""

from __future__ import annotations

import asyncio
import logging
import math
import ssl
from enum import Enum, auto
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from farthing.openai_protocol.errors import RequestError
from farthing.server.http.connections import Connections
from farthing.server.http.cycle import Cycle, error_header_list
from farthing.server.http.errors import error_bytes
from farthing.server.http.held_body import HeldBody
from farthing.server.http.limits import HttpLimits
from farthing.server.http.refusals import too_many_connections, too_slow

logger = logging.getLogger("farthing.server.http")

NEVER = math.inf
LEAST_READ = 16 << 10
"""Bytes of a full write buffer that a client must take within ``write_timeout``."""


class Phase(Enum):
    IDLE = auto()  # nothing of a request is there
    HEAD = auto()
    BODY = auto()
    ANSWERING = auto()  # all of the request is there, not all of the response
    DEAF = auto()  # likewise, but nothing more is read: the connection ends with the response
    CLOSING = auto()


class LimitedConnection(HttpToolsProtocol):
    """What is not parsing about a connection. Its refusals are error objects, and the last word."""

    limits: ClassVar[HttpLimits]
    all_connections: ClassVar[Connections]
    tls: ClassVar[ssl.SSLContext | None]

    cycle: Cycle

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.read_deadline = NEVER
        self.write_deadline = NEVER
        self._phase = Phase.HEAD
        self._one_too_many = False
        self._begun = False  # and, with TLS, hands are shaken
        self._all_read = False
        self._waiting = b""  # bytes of later requests
        self._head_bytes = 0
        self._body: HeldBody | None = None  # of the request under way
        self._unwritten = 0  # bytes in the write buffer when it was last looked at

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        others = len(self.all_connections.open)
        self.all_connections.enter(self, self.loop)
        self.read_deadline = self.loop.time() + self.limits.header_timeout
        self._one_too_many = others >= self.all_connections.limit
        hopeless = others >= self.all_connections.limit + self.all_connections.spare
        if self.tls is None:
            self._begin(transport)
            if hopeless:
                transport.close()
        else:
            self.transport = transport
            self.connections.add(self)
            if hopeless:
                transport.abort()
            else:
                self._begin_securely(transport, self.tls)

    def _begin_securely(self, transport: asyncio.Transport, tls: ssl.SSLContext) -> None:
        """Shakes hands before the connection counts as made, within the time of a head.

        uvicorn would have it done beneath the connection: uncounted, and with a minute for each.
        """
        upgrade = self.loop.start_tls(
            transport,
            self,
            tls,
            server_side=True,
            ssl_handshake_timeout=self.limits.header_timeout,
            ssl_shutdown_timeout=self.limits.linger_timeout,
        )
        # Its first step must be over before the loop reads anything: no task would be in time.
        waiter = upgrade.send(None)

        def shaken(_: object) -> None:
            try:
                upgrade.send(None)
            except StopIteration as result:
                if transport.is_closing():  # it left meanwhile
                    self._give_up_handshake()
                else:
                    self._begin(result.value)
            except OSError:  # of TLS too: it broke off, was slow, or was something else
                self._give_up_handshake()

        waiter.add_done_callback(shaken)

    def _give_up_handshake(self) -> None:
        self._count("no TLS")
        self.all_connections.leave(self)
        self.connections.discard(self)
        self.transport.abort()

    def _begin(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._begun = True
        if self._one_too_many:
            self._refuse(too_many_connections(), "connections")
        early, self._waiting = self._waiting, b""
        if early:
            self.data_received(early)

    def connection_lost(self, exc: Exception | None) -> None:
        self.all_connections.leave(self)
        self._release_body()
        self._waiting = b""
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]
        """The client sends no more: it has left, or has only no more to say.

        Whether the connection stays open, for answers that need no waiting: to what is under way
        and to what has come behind it.
        """
        self._all_read = True
        answering = self._phase in (Phase.ANSWERING, Phase.DEAF)
        if self.tls is None and answering and not self.cycle.response_started:
            self.cycle.leave()
            if self._phase is Phase.DEAF or not self._waiting:
                self._stop_listening()
            return True
        self._tell_disconnect()
        self._close()
        return False

    def shutdown(self) -> None:
        """The server is about to stop: what has begun is finished."""
        self._waiting = b""
        if self._phase in (Phase.IDLE, Phase.HEAD):
            if self.tls is None:
                self._close()
            else:  # TLS would wait for the client to say goodbye, which an idle one never reads
                self.transport.abort()
        elif self._phase is not Phase.CLOSING:
            self.cycle.keep_alive = False
            if self.cycle.response_complete:
                self._close_politely()

    def pause_writing(self) -> None:
        """The write buffer is full: the client reads too slowly, or not at all."""
        super().pause_writing()
        self._unwritten = self.transport.get_write_buffer_size()
        self.write_deadline = self.loop.time() + self.limits.write_timeout

    def resume_writing(self) -> None:
        """The write buffer is all but empty."""
        super().resume_writing()
        if self._phase is not Phase.CLOSING:
            self.write_deadline = NEVER

    def expire(self, now: float) -> None:
        """A deadline is over."""
        if not self._begun:
            self._give_up_handshake()
        elif self.write_deadline <= now:
            unwritten = self.transport.get_write_buffer_size()
            if self._unwritten - unwritten >= LEAST_READ:
                self._unwritten = unwritten
                self.write_deadline = now + self.limits.write_timeout
            else:
                self._count("stalled reader")
                self._tell_disconnect()
                self.transport.abort()
        elif self._phase is Phase.HEAD and self._head_bytes:
            self._refuse(too_slow("head", self.limits.header_timeout), "slow head")
        elif self._phase is Phase.BODY and self.flow.read_paused:
            self.read_deadline = now + self.limits.body_timeout  # it is us who do not read
        elif self._phase is Phase.BODY:
            self._cut(too_slow("body", self.limits.body_timeout), "slow body")
        elif self._phase is Phase.CLOSING:
            self.transport.abort()
        else:
            self._close()

    def abort(self) -> None:
        """Ends it at once, whatever it is doing."""
        self.transport.abort()

    def _refuse(self, error: RequestError, reason: str) -> None:
        """Answers for the application, which has not heard of the request."""
        self._count(reason)
        body = error_bytes(error)
        headers = [
            *self.server_state.default_headers,
            *error_header_list(error),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        ]
        lines = [name + b": " + value + b"\r\n" for name, value in headers]
        self.transport.write(b"".join([STATUS_LINE[error.status], *lines, b"\r\n", body]))
        self._close_politely()

    def _cut(self, error: RequestError, reason: str) -> None:
        """Ends a body; the application answers, if it has not yet."""
        self._count(reason)
        self._stop_listening()
        if not self.cycle.response_complete:
            self.cycle.cut_off(error)

    def _stop_listening(self) -> None:
        """The response under way is the last."""
        self._phase = Phase.DEAF
        self.read_deadline = NEVER
        self.cycle.keep_alive = False
        self.flow.resume_reading()
        if self.cycle.response_complete:
            self._close_politely()

    def _close_politely(self) -> None:
        """Closes when the client has had time to read what was said while it was still sending."""
        if self._phase is Phase.CLOSING or self.transport.is_closing():
            return
        if self._all_read or (self._phase is Phase.ANSWERING and not self._waiting):
            self._close()
            return
        self._phase = Phase.CLOSING
        self.read_deadline = self.loop.time() + self.limits.linger_timeout
        if self.transport.get_write_buffer_size():
            self.read_deadline += self.limits.write_timeout
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def _close(self) -> None:
        self._phase = Phase.CLOSING
        self.read_deadline = NEVER
        self._unwritten = self.transport.get_write_buffer_size()
        self.write_deadline = self.loop.time() + self.limits.write_timeout
        if not self.transport.is_closing():
            self.transport.close()

    def _tell_disconnect(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            self.flow.resume_writing()

    def _release_body(self) -> None:
        body, self._body = self._body, None
        if body is not None:
            body.leave()

    def _count(self, reason: str) -> None:
        self.all_connections.refused[reason] += 1
        logger.info("%s: %s", self.client[0] if self.client else "a client", reason)
