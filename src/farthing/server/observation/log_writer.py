"""Writes lines from a thread of its own: who logs never waits for whoever reads."""

from __future__ import annotations

import os
import queue
import select
import threading
from collections.abc import Callable

MAX_LINES = 10_000
MAX_BYTES = 16 << 20
"""What waits to be written at most; the rest is dropped and counted."""


class LineWriter:
    """Lines to a file descriptor in the order in which they came.

    A pipe that nobody reads or that is closed and a disk that is full cost lines, never time of the
    caller. The next line that can be written is followed by ``on_dropped`` of how many were not.
    """

    def __init__(
        self,
        fd: int,
        *,
        on_dropped: Callable[[int], str] = "{} log records were dropped".format,
        max_lines: int = MAX_LINES,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._fd = fd
        self._on_dropped = on_dropped
        self._max_lines = max_lines
        self._max_bytes = max_bytes
        # A SimpleQueue takes no lock that a finalizer, logging in the middle of a put, could need.
        self._lines: queue.SimpleQueue[bytes | threading.Event | None] = queue.SimpleQueue()
        self._put_bytes = 0  # by callers
        self._taken_bytes = 0  # by the thread
        self._refused = 0  # lines that found no room
        self._failed = 0  # lines that could not be written
        self._told = 0  # of both, said in the log itself
        self._torn = False  # the last line was begun and not ended
        self._closed = False
        self._thread = threading.Thread(target=self._write_all, name="farthing-log", daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        """Lines that were not written, over all time."""
        return self._refused + self._failed

    def put(self, line: str) -> None:
        """Takes a line (without its end). Never waits, never raises."""
        raw = line.encode("utf-8", "replace") + b"\n"
        waiting = self._put_bytes - self._taken_bytes
        full = self._lines.qsize() >= self._max_lines or waiting + len(raw) > self._max_bytes
        if full or self._closed:
            self._refused += 1
            return
        self._put_bytes += len(raw)
        self._lines.put(raw)

    def flush(self, patience: float) -> bool:
        """Waits until what came before is written, ``patience`` seconds at most; whether it is."""
        reached = threading.Event()
        self._lines.put(reached)
        return reached.wait(patience)

    def close(self, patience: float = 1.0) -> None:
        """Writes what there is, in ``patience`` seconds at most, and nothing that comes later."""
        self._closed = True
        self._lines.put(None)
        self._thread.join(patience)

    def _write_all(self) -> None:
        while (line := self._lines.get()) is not None:
            if isinstance(line, threading.Event):
                line.set()
                continue
            self._taken_bytes += len(line)
            if not self._write(line):
                self._failed += 1
            elif self.dropped > self._told:
                missing, self._told = self.dropped - self._told, self.dropped
                self._write(self._on_dropped(missing).encode() + b"\n")

    def _write(self, line: bytes) -> bool:
        left = memoryview(b"\n" + line if self._torn else line)
        begun = self._torn
        try:
            while left:
                try:
                    left = left[os.write(self._fd, left) :]
                    begun = True
                except BlockingIOError:  # somebody made the pipe we share with them non-blocking
                    poll = select.poll()
                    poll.register(self._fd, select.POLLOUT)
                    poll.poll()
        except (OSError, ValueError):
            self._torn = begun
            return False
        self._torn = False
        return True
