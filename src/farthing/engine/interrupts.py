"""Ctrl-C between the passes of an engine, not between the lines that keep its books."""

from __future__ import annotations

import contextlib
import signal
import threading
from types import FrameType

try:  # what `signal` wraps to make enums of handlers, which takes an exception each time
    import _signal as plain  # type: ignore[import-not-found]
except ImportError:  # not CPython
    import signal as plain

_SIGINT = int(signal.SIGINT)


class InterruptsHeld:
    """While entered, SIGINT waits; its handler is called when the block is left.

    An exception between two lines would leave a block in no table, or a request in no queue. Python
    calls handlers in the main thread alone and never within a native pass, so nobody waits longer
    than before. Elsewhere, or where SIGINT has no handler of Python's, this does nothing.
    """

    def __init__(self) -> None:
        self._frames: list[FrameType | None] = []  # one for each SIGINT that came
        self._handler: object = None

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        handler = plain.getsignal(_SIGINT)
        if not callable(handler):
            return
        with contextlib.suppress(ValueError):  # another interpreter's main thread
            plain.signal(_SIGINT, self._receive)
            self._handler = handler

    def _receive(self, _number: int, frame: FrameType | None) -> None:
        self._frames.append(frame)

    def __exit__(self, *_: object) -> None:
        if not callable(self._handler):
            return
        plain.signal(_SIGINT, self._handler)
        for frame in self._frames:
            handler = plain.getsignal(_SIGINT)  # the last call may have put another there
            if callable(handler):
                handler(_SIGINT, frame)
            else:
                signal.raise_signal(signal.SIGINT)
