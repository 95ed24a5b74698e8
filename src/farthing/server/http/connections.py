"""All connections of a server: how many there may be, and whose time is over."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Protocol

from farthing.server.http.descriptors import most_connections
from farthing.server.http.limits import HttpLimits

LONGEST_SWEEP = 1.0
SHORTEST_SWEEP = 0.05


class Timed(Protocol):
    """A connection with times of the loop's clock after which it is not as it should be."""

    read_deadline: float
    write_deadline: float

    def expire(self, now: float) -> None:
        """One of them is over."""

    def abort(self) -> None:
        """Ends it at once."""


class Connections:
    """One timer looks after all connections, so that a connection costs no timer of its own.

    ``refused`` counts what was answered or cut off before or beside the application, by reason.
    """

    def __init__(self, limits: HttpLimits) -> None:
        self.open: set[Timed] = set()
        self.limit = limits.max_connections or most_connections()
        # Beyond the limit some more are listened to while they read that there is no room.
        self.spare = spare_connections(self.limit)
        self.body_bytes = 0  # of bodies that are coming, wait or are worked on
        self.refused: Counter[str] = Counter()
        timeouts = (
            limits.header_timeout,
            limits.body_timeout,
            limits.keep_alive_timeout,
            limits.write_timeout,
            limits.linger_timeout,
        )
        self._interval = min(max(min(timeouts) / 10, SHORTEST_SWEEP), LONGEST_SWEEP)
        self._timer: asyncio.TimerHandle | None = None

    def enter(self, connection: Timed, loop: asyncio.AbstractEventLoop) -> None:
        """``connection`` is there until it leaves."""
        self.open.add(connection)
        if self._timer is None:
            self._timer = loop.call_later(self._interval, self._sweep, loop)

    def leave(self, connection: Timed) -> None:
        """It is gone."""
        self.open.discard(connection)

    def abort_all(self) -> None:
        """Ends all that are left, at once."""
        for connection in list(self.open):
            connection.abort()

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        over = [c for c in self.open if c.read_deadline <= now or c.write_deadline <= now]
        for connection in over:
            connection.expire(now)
        # Nobody there: nothing to wake up for.
        self._timer = loop.call_later(self._interval, self._sweep, loop) if self.open else None


def spare_connections(limit: int) -> int:
    """How many connections beyond ``limit`` are answered; the rest is closed without a word."""
    return max(limit // 16, 4)
