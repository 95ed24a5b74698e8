"""The bytes of one body, counted with those of all others for as long as anybody has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from farthing.server.http.limits import HttpLimits
from farthing.server.http.refusals import too_much_at_once


class Counting(Protocol):
    """Where all are counted together."""

    body_bytes: int


class HeldBody:
    """What has come of a body. The connection has it first; whoever works on it keeps it, too."""

    def __init__(self, counting: Counting, limits: HttpLimits) -> None:
        self._counting = counting
        self._limits = limits
        self._bytes = 0
        self._keepers = 1

    def grow(self, size: int) -> None:
        """``size`` more bytes. Raises :class:`RequestError` (503) where all together are too many.

        They count even then, until the refusal is through.
        """
        self._bytes += size
        self._counting.body_bytes += size
        if self._counting.body_bytes > self._limits.max_bodies_bytes:
            raise too_much_at_once()

    def keep(self) -> None:
        """It counts until :meth:`leave` has been called once more, connection or no connection."""
        self._keepers += 1

    def leave(self) -> None:
        """One that had it has it no longer."""
        self._keepers -= 1
        if self._keepers == 0:
            self.let_go()

    def let_go(self) -> None:
        """Nobody has it any longer. Twice is once."""
        self._counting.body_bytes -= self._bytes
        self._bytes = 0


def held_body(scope: Mapping[str, Any]) -> HeldBody | None:
    """That of a request, None where no connection of ours has read it."""
    held: HeldBody | None = scope.get("state", {}).get("held_body")
    return held
