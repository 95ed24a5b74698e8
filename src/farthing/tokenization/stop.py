"""Stop strings in text that arrives in pieces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from farthing.errors import InvalidParameterError


class StopResult(NamedTuple):
    """Text that may be shown, and whether a stop string ended it."""

    text: str
    stopped: bool


class StopStrings:
    """Ends a text before the first stop string in it, however the text is cut into pieces.

    The first is the one that begins earliest; of those that begin together, the shortest. Only a
    suffix that may become a stop string is held back. ``include_stop`` keeps the stop string as
    the end of the text. Afterwards :attr:`matched` is the string that was found. Raises
    InvalidParameterError for an empty stop string.
    """

    def __init__(self, stops: Sequence[str], *, include_stop: bool = False) -> None:
        if isinstance(stops, str):
            stops = (stops,)
        if not all(isinstance(stop, str) and stop for stop in stops):
            raise InvalidParameterError(f"stop strings must not be empty: {list(stops)!r}")
        self._stops = tuple(sorted(set(stops), key=len))
        self._beginnings = {stop[:n] for stop in self._stops for n in range(1, len(stop))}
        self._longest = max(map(len, self._stops), default=1)
        self._include_stop = include_stop
        self._held = ""
        self.matched: str | None = None

    def push(self, text: str) -> StopResult:
        """Take the next piece; after ``stopped`` nothing more is emitted."""
        if self.matched is not None:
            return StopResult("", True)
        if not self._stops:
            return StopResult(text, False)
        text = self._held + text
        start, stop = self._first(text)
        pending = self._first_pending(text)
        if stop is not None and start <= pending:
            return self._finish(text, start, stop)
        self._held = text[pending:]
        return StopResult(text[:pending], False)

    def flush(self) -> StopResult:
        """The text has ended: what was held back, as far as a stop string within it."""
        if self.matched is not None:
            return StopResult("", True)
        start, stop = self._first(self._held)
        if stop is not None:
            return self._finish(self._held, start, stop)
        text, self._held = self._held, ""
        return StopResult(text, False)

    def _first(self, text: str) -> tuple[int, str | None]:
        first, found = len(text), None
        for stop in self._stops:
            start = text.find(stop, 0, first + len(stop) - 1)
            if start >= 0 and start < first:
                first, found = start, stop
        return first, found

    def _first_pending(self, text: str) -> int:
        """Where the longest suffix begins that is a proper prefix of a stop string."""
        for start in range(max(0, len(text) - self._longest + 1), len(text)):
            if text[start:] in self._beginnings:
                return start
        return len(text)

    def _finish(self, text: str, start: int, stop: str) -> StopResult:
        self.matched, self._held = stop, ""
        return StopResult(text[:start] + (stop if self._include_stop else ""), True)
