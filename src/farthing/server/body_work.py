"""Bodies are read, checked and encoded in threads, a few at a time; the others wait, counted."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import TypeVar

from farthing.server.http.held_body import HeldBody

T = TypeVar("T")


TOGETHER = 16
"""Bodies whose work is found vain in one turn of the loop: others wait for it."""


class BodyWork:
    """At most ``limit`` bodies are in the hands of ``threads``; the others come in turn.

    A thread cannot be interrupted: if the client leaves, its body counts until the thread is
    through with it, and only then the next has its turn. What still waits is forgotten at once.
    """

    def __init__(self, threads: Executor, limit: int) -> None:
        self._threads = threads
        self._free = limit
        self._waiting: deque[tuple[asyncio.Future[None], Callable[[], None]]] = deque()

    async def done(
        self,
        held: HeldBody | None,
        work: Callable[[bytes], T],
        raw: bytes,
        *,
        check: Callable[[], None] = lambda: None,
    ) -> T:
        """``work(raw)``, when its turn comes; raises what it does.

        ``check`` comes before: what it raises spares the work, and its turn is the next one's.
        """
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        self._waiting.append((turn, check))
        self._next()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled() and turn.exception() is None:  # it had come just then
                self._release()
            raise
        if held is not None:
            held.keep()
        given = [raw]  # emptied by who takes it: an executor remembers even what was cancelled

        def through() -> None:
            self._release()
            if held is not None:
                held.leave()

        def over(_: Future[T]) -> None:
            given.clear()
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody counts any more
                loop.call_soon_threadsafe(through)

        del raw
        try:
            future = self._threads.submit(lambda: work(given.pop()))
        except BaseException:  # the server ends
            through()
            raise
        future.add_done_callback(over)
        return await asyncio.wrap_future(future)

    def _release(self) -> None:
        self._free += 1
        self._next()

    def _next(self) -> None:
        """Gives turns to those who wait, in their order."""
        spared = 0
        while self._free and self._waiting:
            if spared == TOGETHER:
                asyncio.get_running_loop().call_soon(self._next)
                return
            turn, check = self._waiting.popleft()
            if turn.done():  # whoever asked has left
                continue
            try:
                check()
            except Exception as error:
                turn.set_exception(error)
                spared += 1
            else:
                self._free -= 1
                turn.set_result(None)
