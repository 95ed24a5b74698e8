"""Notices that a client has left, whatever is being done for it."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from starlette.requests import ClientDisconnect
from starlette.types import Receive


class ClientWatch:
    """Ends the ``async with`` block with ``ClientDisconnect`` as soon as the client has left.

    The body of the request must have been read. Whatever the block waits for is cancelled.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._left = False
        self._over = False

    async def __aenter__(self) -> Self:
        """Begins to watch."""
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._watch = asyncio.create_task(self._wait())
        return self

    def release(self) -> None:
        """The last part of the answer is being sent: from now on to leave is no news."""
        self._over = True

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends the watch; raises ``ClientDisconnect`` if it was what ended the block."""
        self._over = True
        self._watch.cancel()
        if not self._left:
            return
        by_others_too = self._task.uncancel() > 0
        if kind is asyncio.CancelledError and not by_others_too:
            raise ClientDisconnect from None

    async def _wait(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if not self._over:
            self._left = True
            self._task.cancel()
