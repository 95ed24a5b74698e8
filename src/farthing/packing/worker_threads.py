"""Threads for work that is not to be waited for when it is no longer wanted."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager


@contextmanager
def worker_threads(num_threads: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that drop what they have not begun when the body fails or is interrupted."""
    with ThreadPoolExecutor(num_threads) as threads:
        try:
            yield threads
        except BaseException:
            threads.shutdown(cancel_futures=True)
            raise
