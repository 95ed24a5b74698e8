"""A pipe that is full and that nobody reads."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def full_pipe() -> Iterator[int]:
    """The end to write to: whoever does waits until the block is left."""
    reading, writing = os.pipe()
    try:
        os.set_blocking(writing, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writing, b"x" * 4096)
        os.set_blocking(writing, True)
        yield writing
    finally:
        os.close(reading)
        os.close(writing)
