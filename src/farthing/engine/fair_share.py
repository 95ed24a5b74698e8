"""Who has been served how much: virtual token counters."""

from __future__ import annotations

from collections import Counter, OrderedDict

INPUT_WEIGHT = 1
OUTPUT_WEIGHT = 2
"""What a token of a prompt and a generated one cost (Sheng et al. 2024, section 5.1)."""

MAX_REMEMBERED = 10_000
"""Users without requests whose service is remembered; the longest gone are forgotten first."""


class VirtualTokenCounters:
    """The service each user has received, in weighted tokens.

    Whoever begins to wait starts no lower than who was next last, or than those who wait already if
    they are lower: having nothing that waits saves nothing up (Sheng et al., *Fairness in Serving
    Large Language Models*, OSDI 2024, algorithm 2).
    """

    def __init__(self) -> None:
        self._service: dict[str, int] = {}
        self._unfinished: Counter[str] = Counter()
        self._gone: OrderedDict[str, None] = OrderedDict()  # the longest gone first
        self._floor = 0

    def enter(self, user: str) -> None:
        """Notes one request more of ``user``."""
        if not self._unfinished[user]:
            self._gone.pop(user, None)
            self._service.setdefault(user, 0)
        self._unfinished[user] += 1

    def leave(self, user: str) -> None:
        """Notes that a request of ``user`` has ended."""
        self._unfinished[user] -= 1
        if self._unfinished[user]:
            return
        del self._unfinished[user]
        if self._service[user] == 0:
            del self._service[user]
            return
        self._gone[user] = None
        if len(self._gone) > MAX_REMEMBERED:
            longest, _ = self._gone.popitem(last=False)
            del self._service[longest]

    def lift(self, user: str, least: int | None) -> None:
        """Notes that ``user`` begins to wait where the ``least`` served has that; None: nobody."""
        floor = self._floor if least is None else min(self._floor, least)
        self._service[user] = max(self._service[user], floor)

    @property
    def floor(self) -> int:
        """Service of the last one who was next in his turn, at which newcomers begin."""
        return self._floor

    def service(self, user: str) -> int:
        """Weighted tokens that count for ``user``."""
        return self._service[user]

    def admitted(self, user: str) -> None:
        """Notes that ``user`` had the least service of those who waited, and now runs."""
        self._floor = max(self._floor, self._service[user])

    def charge(self, user: str, input_tokens: int, output_tokens: int) -> None:
        """Adds tokens that were computed for ``user``."""
        self._service[user] += INPUT_WEIGHT * input_tokens + OUTPUT_WEIGHT * output_tokens
