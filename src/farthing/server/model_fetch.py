"""Fetching the model while the port is open: in a thread that nobody has to wait for."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

Tell = Callable[[int, int], None]
"""Takes the bytes that are here and all there will be. May raise, to end the transfer."""


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A model that is on this machine. ``names``: as in :class:`ServerSettings`."""

    path: Path
    names: tuple[str, ...]


Fetch = Callable[[Tell], FoundModel]
"""Finds or downloads a model. Tells of bytes as they come, and of nothing if none have to."""


class _Stopped(BaseException):
    """Unwinds the thread, whatever it handles on the way."""


class ModelFetch:
    """``fetch`` at work, from the start on. ``found`` is its end, perhaps an exception.

    ``tell`` is called from the thread. Belongs to the running event loop.
    """

    def __init__(self, fetch: Fetch, tell: Tell) -> None:
        self._loop = asyncio.get_running_loop()
        self.found: asyncio.Future[FoundModel] = self._loop.create_future()
        self._fetch = fetch
        self._tell = tell
        self._stopped = False
        # A daemon: it may hang in a read from a network, which the end must not wait for.
        threading.Thread(target=self._work, name="model fetch", daemon=True).start()

    async def stop(self, patience: float) -> None:
        """Ends it at the next bytes that come; waits so many seconds for that."""
        self._stopped = True
        await asyncio.wait((self.found,), timeout=patience)
        if self.found.done():
            self.found.exception()  # nobody else asks

    def _work(self) -> None:
        found: FoundModel | None = None
        problem: BaseException | None = None
        try:
            found = self._fetch(self._told)
        except BaseException as error:
            problem = error

        def end() -> None:
            if problem is not None:
                self.found.set_exception(problem)
            elif found is not None:
                self.found.set_result(found)

        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody asks any more
            self._loop.call_soon_threadsafe(end)

    def _told(self, done: int, total: int) -> None:
        if self._stopped:
            raise _Stopped
        self._tell(done, total)
