"""Messages on a private pair of sockets: four bytes of length, then the pickled message.

Only the two processes of one server have an end of the pair: what is unpickled is their own.
"""

from __future__ import annotations

import asyncio
import pickle
import select
import socket
import struct
import time
from collections.abc import Callable
from typing import Any, cast

from farthing.errors import FarthingError

MAX_FRAME_BYTES = 1 << 30
"""Of one message; far beyond the log probabilities of the longest prompt."""

MOST_UNSENT_BYTES = 64 << 20
"""What an engine keeps for a server that does not read, before it waits for it."""

_LENGTH = struct.Struct("<I")
_READ_BYTES = 1 << 18


class FrameError(FarthingError):
    """A message that is too large, or bytes that are none."""


def frame(message: object) -> bytes:
    """The bytes of a message. Raises :class:`FrameError` for one that is too large."""
    body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    if len(body) > MAX_FRAME_BYTES:
        raise FrameError(
            f"a message takes {len(body)} bytes, at most {MAX_FRAME_BYTES} are allowed"
        )
    return _LENGTH.pack(len(body)) + body


class FrameReader:
    """Finds messages in bytes that come in pieces of any size."""

    def __init__(self) -> None:
        self._rest = bytearray()  # of a message that is not whole yet

    def feed(self, data: bytes) -> list[Any]:
        """The messages that ``data`` completes. Raises :class:`FrameError`."""
        if not self._rest:
            messages, end = _parse(data)
            self._rest += data[end:]
        else:
            self._rest += data
            messages, end = _parse(self._rest)
            del self._rest[:end]
        return messages


def _parse(data: bytes | bytearray) -> tuple[list[Any], int]:
    """Messages that are whole, and where the first that is not begins."""
    messages = []
    start, size = 0, len(data)
    with memoryview(data) as view:
        while size - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(data, start)
            if length > MAX_FRAME_BYTES:
                raise FrameError(f"a message of {length} bytes is announced")
            end = start + _LENGTH.size + length
            if end > size:
                break
            with view[start + _LENGTH.size : end] as body:
                try:
                    messages.append(pickle.loads(body))
                except Exception as error:
                    raise FrameError(f"a message cannot be read: {error}") from error
            start = end
    return messages, start


class EngineSeam:
    """The engine's end. It never waits for the server, but with nothing else to do.

    Nor for one that reads slowly: what does not go into the socket at once is sent on with later
    calls, up to a bound.
    """

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        end.set_inheritable(False)
        self._end = end
        self._reader = FrameReader()
        self._unsent = bytearray()

    def receive(self, timeout: float | None) -> list[Any]:
        """Messages that have come; waits ``timeout`` seconds (None: for ever) for the first.

        Raises :class:`EOFError` once the server has gone, :class:`FrameError`.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            self._send_on()
            messages = self._received()
            if messages:
                return messages
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return []
            self._wait(select.POLLIN, left)

    def _received(self) -> list[Any]:
        messages: list[Any] = []
        while True:
            try:
                data = self._end.recv(_READ_BYTES)
            except BlockingIOError:
                return messages
            except ConnectionError:
                data = b""
            if not data:
                raise EOFError("the server has gone")
            messages += self._reader.feed(data)
            if len(data) < _READ_BYTES:
                return messages

    def send(self, message: object) -> None:
        """Sends a message, now or with a later call.

        Raises :class:`EOFError` once the server has gone, :class:`FrameError`.
        """
        self._unsent += frame(message)
        self._send_on()
        while len(self._unsent) > MOST_UNSENT_BYTES:
            self._wait(0, None)
            self._send_on()

    def flush(self, timeout: float) -> None:
        """Waits up to ``timeout`` seconds until all is sent. Raises :class:`EOFError`."""
        deadline = time.monotonic() + timeout
        while self._unsent and (left := deadline - time.monotonic()) > 0:
            self._wait(0, left)
            self._send_on()

    def _send_on(self) -> None:
        while self._unsent:
            try:
                sent = self._end.send(self._unsent)
            except BlockingIOError:
                return
            except ConnectionError as error:
                raise EOFError("the server has gone") from error
            del self._unsent[:sent]

    def _wait(self, events: int, timeout: float | None) -> None:
        """Until the socket is ready for ``events``, or for what is not sent yet."""
        poll = select.poll()
        poll.register(self._end, events | (select.POLLOUT if self._unsent else 0))
        poll.poll(None if timeout is None else timeout * 1000)


class ServerSeam(asyncio.Protocol):
    """The server's end, on its event loop: it never waits.

    ``on_message`` is called with each message, ``on_end`` once with what went wrong, if anything.
    """

    def __init__(
        self, on_message: Callable[[Any], None], on_end: Callable[[Exception | None], None]
    ) -> None:
        self._on_message = on_message
        self._on_end = on_end
        self._reader = FrameReader()
        self._transport: asyncio.WriteTransport | None = None
        self._problem: Exception | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        self._transport = cast("asyncio.WriteTransport", transport)  # uvloop's is no subclass

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        try:
            messages = self._reader.feed(data)
        except FrameError as error:
            self._problem = error
            self.close()
            return
        for message in messages:
            self._on_message(message)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        self._on_end(self._problem or exc)

    @property
    def has_unread(self) -> bool:
        """Whether the engine has said something, or left, and the event loop does not know yet."""
        if self._transport is None or self._transport.is_closing():
            return False
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket"), select.POLLIN)
        return bool(poll.poll(0))

    def send(self, message: object) -> None:
        """Sends a message; what has no room in the socket waits in memory."""
        assert self._transport is not None
        if not self._transport.is_closing():
            self._transport.write(frame(message))

    def close(self) -> None:
        """Closes this end at once. Twice is once."""
        if self._transport is not None:
            self._transport.abort()
