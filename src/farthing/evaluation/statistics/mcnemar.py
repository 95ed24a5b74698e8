"""Whether two models differ in what they get right."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from farthing.evaluation.statistics.binomial import half_tail


def mcnemar(only_first: int, only_second: int, design_effect: float = 1.0) -> float:
    """Two-sided p of the questions that one of two models alone gets right (McNemar 1947).

    Exact: if the models were alike, either would be the right one with probability 1/2. Not
    mid-p, so that it is below 5 % in at most 5 % of such cases.

    Of questions that are not independent the counts are divided by a ``design_effect`` (Rao and
    Scott, "A simple method for the analysis of clustered binary data", 1992), 1 or more, and
    rounded to what shows less.
    """
    discordant = int((only_first + only_second) / design_effect)
    rarer = min(math.ceil(min(only_first, only_second) / design_effect), discordant // 2)
    return min(1.0, 2 * half_tail(discordant, rarer))


def largest_minorities(n: int, alpha: float = 0.05) -> NDArray[np.int64]:
    """For 0 ... n discordant pairs, the most on the rarer side that :func:`mcnemar` still finds.

    (n + 1,); -1 where it calls nothing a difference.
    """
    found = np.empty(n + 1, np.int64)
    k, term, tail = -1, 0, 0  # tail: outcomes of m pairs with at most k on a side; term: with k
    for m in range(n + 1):
        if m:
            tail, term = 2 * tail - term, (term * m // (m - k) if k >= 0 else 0)
        following = term * (m - k) // (k + 1) if k >= 0 else 1
        if 2 * (tail + following) / (1 << m) <= alpha:  # with one pair more, at most one more
            k, term, tail = k + 1, following, tail + following
        found[m] = k
    return found
