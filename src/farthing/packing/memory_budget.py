"""Memory that threads share."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class MemoryBudget:
    """Bytes to be taken and given back; who finds too few left waits for others."""

    def __init__(self, nbytes: int) -> None:
        self._total = self._left = nbytes
        self._given_back = threading.Condition()

    @contextmanager
    def take(self, nbytes: int) -> Iterator[None]:
        """Holds ``nbytes``, or all there are if that is more."""
        nbytes = min(nbytes, self._total)
        with self._given_back:
            self._given_back.wait_for(lambda: nbytes <= self._left)
            self._left -= nbytes
        try:
            yield
        finally:
            with self._given_back:
                self._left += nbytes
                self._given_back.notify_all()
