"""Who was told when to come, so that no two are told to come for the same place."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable

LEAST_WAIT = 0.1
"""Seconds that are told at least: who is back sooner learns nothing new."""

MOST_WAIT = 120.0
"""Seconds that are told at most: the OpenAI client takes a longer time for none at all."""

MOST_PROMISES = 4096
"""That are remembered; whoever is refused beyond them gets the same place as others."""

NEAR = 256
"""Promises, the next to be due, that newcomers make way for."""

GRACE = 2.0
"""Seconds after its time for which a promise is kept: clients wait whole seconds, then connect."""


class Promises:
    """Times at which somebody was told to come, and with how many tokens.

    Those who come are not known by name: whoever comes when somebody is due is taken for him. Who
    came at his time and in vain is put off (``again``): he goes ahead of those who have not come
    yet, and has every second place, for he will meet them.
    """

    def __init__(self) -> None:
        self._all: list[tuple[float, int]] = []  # times and tokens, ascending
        self._again: list[tuple[float, int]] = []  # those of them that were put off
        self._tokens = [0, 0]  # of all; of those that were put off

    def __len__(self) -> int:
        """Promises that stand."""
        return len(self._all)

    def arrive(self, now: float) -> bool:
        """Notes that somebody comes; returns whether a promise was due, which is now kept."""
        self._expire(now)
        if not self._all or self._all[0][0] > now:
            return False
        self._drop(1)
        return True

    def allow(self, free: int, freed: Callable[[float], int], now: float) -> bool:
        """Whether one of ``free`` places can be given away and leave one to all who will come.

        ``freed``: places more that there will be at a time.
        """
        self._expire(now)
        near = enumerate(self._all[:NEAR], 1)
        return all(free + freed(time) > count for count, (time, _) in near)

    def _expire(self, now: float) -> None:
        self._drop(bisect_left(self._all, (now - GRACE,)))

    def _drop(self, count: int) -> None:
        for promise in self._all[:count]:
            self._tokens[False] -= promise[1]
            if self._again and self._again[0] == promise:
                del self._again[0]
                self._tokens[True] -= promise[1]
        del self._all[:count]

    def place(self, *, again: bool) -> int:
        """The number of the place, from 1, that the next to be refused may have."""
        return 2 * (len(self._again) + 1) if again else len(self._all) + 1

    def room(self, tokens: int, *, again: bool) -> int:
        """The tokens that there must be room for before those of the next to be refused fit."""
        return 2 * (self._tokens[True] + tokens) if again else self._tokens[False] + tokens

    def add(self, time: float, now: float, tokens: int = 0, *, again: bool = False) -> None:
        """Notes that somebody is told to come then, unless that is too late to be told."""
        if time - now > MOST_WAIT or len(self._all) >= MOST_PROMISES:
            return
        promise = time, tokens
        insort(self._all, promise)
        self._tokens[False] += tokens
        if again:
            insort(self._again, promise)
            self._tokens[True] += tokens
