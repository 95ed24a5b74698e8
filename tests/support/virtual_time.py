"""An event loop whose clock goes on at once, whenever nobody has anything to do before it has."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Clock(selectors.DefaultSelector):
    """Where the loop would sleep, time passes."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Waits for nobody."""
        assert timeout is not None, "it would wait for ever"
        self.now += timeout
        return super().select(0)


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._seconds = _Clock()
        super().__init__(self._seconds)

    def time(self) -> float:
        return self._seconds.now


def run_at_once(work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``; it takes the seconds it would take, on its loop's clock alone."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(work)
