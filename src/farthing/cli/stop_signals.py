"""SIGINT and SIGTERM as a wish to stop at the next good moment."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StoppedError(Exception):
    """The first signal came. ``status``: what a shell makes of a process it ended."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.status = 128 + number


class TerminationRaised:
    """While entered, SIGTERM and SIGHUP are a :class:`StoppedError` where they come, as Ctrl-C is.

    So ``finally`` blocks run. The second one acts as ever. SIGHUP stays ignored where it is
    (nohup).
    """

    def __enter__(self) -> TerminationRaised:
        numbers = [signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            numbers.append(signal.SIGHUP)
        self._before = {number: signal.signal(number, self._raise) for number in numbers}
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def _raise(self, number: int, _frame: FrameType | None) -> None:
        self._restore()
        raise StoppedError(number)

    def _restore(self) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)


class StopSignals:
    """While entered, the first signal is kept for :meth:`check`; the second acts as ever."""

    def __init__(self) -> None:
        self._received: int | None = None
        self._before: dict[int, Callable[[int, FrameType | None], Any] | int | None] = {}

    def __enter__(self) -> StopSignals:
        for number in _SIGNALS:
            self._before[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def check(self) -> None:
        """Raises :class:`StoppedError` if a signal has come."""
        if self._received is not None:
            raise StoppedError(self._received)

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        self._received = number
        self._restore()

    def _restore(self) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
