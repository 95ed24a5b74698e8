"""Who was told when to come, so that no two are told to come for the same place."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

GRACE = 2.0
"""Seconds after its time for which a promise is kept: clients wait whole seconds, then connect."""


class Promises:
    """Times at which somebody was told to come, and with how many tokens.

    Those who come are not known by name: whoever comes when somebody is due is taken for him.
    """

    def __init__(self) -> None:
        self._times: list[float] = []  # ascending
        self._tokens: list[int] = []  # of each
        self._again: list[float] = []  # those of them that were put off before, ascending
        self.tokens = 0  # of all

    def __len__(self) -> int:
        """Promises that stand."""
        return len(self._times)

    def arrive(self, now: float) -> bool:
        """Notes that somebody comes; returns whether a promise was due, which is now kept."""
        self._expire(now)
        if not self._times or self._times[0] > now:
            return False
        self._drop(1)
        return True

    def _expire(self, now: float) -> None:
        self._drop(bisect_left(self._times, now - GRACE))

    def _drop(self, count: int) -> None:
        if not count:
            return
        last = self._times[count - 1]
        self.tokens -= sum(self._tokens[:count])
        del self._times[:count]
        del self._tokens[:count]
        del self._again[: bisect_right(self._again, last)]

    def place(self, *, again: bool) -> int:
        """The number of the place, from 1, that the next to be refused may have.

        The one behind all who were promised one. Who came at his time and in vain (``again``) goes
        ahead of those who have not come yet. He has every second place, for he will meet them.
        """
        return 2 * (len(self._again) + 1) if again else len(self._times) + 1

    def add(self, time: float, tokens: int = 0, *, again: bool = False) -> None:
        """Notes that somebody is told to come then."""
        index = bisect_right(self._times, time)
        self._times.insert(index, time)
        self._tokens.insert(index, tokens)
        self.tokens += tokens
        if again:
            self._again.insert(bisect_right(self._again, time), time)
