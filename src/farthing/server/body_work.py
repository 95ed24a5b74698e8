"""Bodies are read, checked and encoded in threads, a few at a time; the others wait, counted."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import TypeVar

from farthing.server.http.held_body import HeldBody

T = TypeVar("T")


class BodyWork:
    """At most ``limit`` bodies are in the hands of ``threads``.

    A thread cannot be interrupted: if the client leaves, its body counts until the thread is
    through with it, and only then the next has its turn. What still waits is forgotten at once.
    """

    def __init__(self, threads: Executor, limit: int) -> None:
        self._threads = threads
        self._free = asyncio.Semaphore(limit)

    async def done(self, held: HeldBody | None, work: Callable[[bytes], T], raw: bytes) -> T:
        """``work(raw)``, when its turn comes; raises what it does."""
        loop = asyncio.get_running_loop()
        await self._free.acquire()
        if held is not None:
            held.keep()
        given = [raw]  # emptied by who takes it: an executor remembers even what was cancelled

        def through() -> None:
            self._free.release()
            if held is not None:
                held.leave()

        def over(_: Future[T]) -> None:
            given.clear()
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody counts any more
                loop.call_soon_threadsafe(through)

        def begin() -> asyncio.Future[T]:
            try:
                future = self._threads.submit(lambda: work(given.pop()))
            except BaseException:  # the server ends
                through()
                raise
            future.add_done_callback(over)
            return asyncio.wrap_future(future)

        del raw
        return await begin()  # and not a future of a name: its exception would have this frame
