"""Sends a stream of events, and something where there is nothing to send for long."""

from __future__ import annotations

import asyncio

from starlette.types import Send

from farthing.server.streaming.events import PING

PING_SECONDS = 15.0

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class EventSender:
    """One response of events; a comment goes out after ``ping_seconds`` without any (0: never).

    One task writes. A client that reads slowly makes it wait, and gets no comments meanwhile.
    """

    def __init__(self, send: Send, ping_seconds: float = PING_SECONDS) -> None:
        self._send = send
        self._ping_seconds = ping_seconds
        self._loop = asyncio.get_running_loop()
        self._last = 0.0  # when something was sent
        self._timer: asyncio.TimerHandle | None = None
        self._ping: asyncio.Task[None] | None = None
        self._writing = False

    async def start(self) -> None:
        """Sends status and headers: from here on an error can only be an event."""
        await self._send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        self._last = self._loop.time()
        if self._ping_seconds > 0:
            self._timer = self._loop.call_later(self._ping_seconds, self._look)

    async def write(self, events: bytes) -> None:
        """Sends events; returns when the connection has taken them."""
        await self._write(events, more=True)

    async def finish(self, events: bytes) -> None:
        """Sends the last events and ends the response."""
        self.close()
        await self._write(events, more=False)

    def close(self) -> None:
        """No comment is sent any more. Twice is once."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _write(self, events: bytes, *, more: bool) -> None:
        self._writing = True
        if self._ping is not None:  # it may still wait for a slow client
            await self._ping
            self._ping = None
        await self._send({"type": "http.response.body", "body": events, "more_body": more})
        self._last = self._loop.time()
        self._writing = False

    def _look(self) -> None:
        quiet = self._loop.time() - self._last
        if self._writing or self._ping is not None:
            wait = self._ping_seconds
        elif quiet >= self._ping_seconds:
            self._ping = self._loop.create_task(self._send_ping())
            wait = self._ping_seconds
        else:
            wait = self._ping_seconds - quiet
        self._timer = self._loop.call_later(wait, self._look)

    async def _send_ping(self) -> None:
        await self._send({"type": "http.response.body", "body": PING, "more_body": True})
        self._last = self._loop.time()
        self._ping = None
