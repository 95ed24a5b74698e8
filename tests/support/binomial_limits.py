"""How far a count of a simulation may be from its share."""

from __future__ import annotations

from scipy import stats

CERTAINTY = 0.999
"""Of a right program passing, had the seed not been fixed."""


def in_binomial_limits(count: int, total: int, share: float) -> bool:
    """Whether a count is one that ``share`` brings about, neither too low nor too high."""
    tail = (1 - CERTAINTY) / 2
    low, high = stats.binom.ppf([tail, 1 - tail], total, share)
    return bool(low <= count <= high)


def most_in_binomial_limits(total: int, share: float) -> int:
    """The highest count that a share of at most ``share`` brings about."""
    return int(stats.binom.ppf(CERTAINTY, total, share))
