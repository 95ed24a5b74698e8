"""Probabilities of the binomial distribution, exact to rounding."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


def log_factorials(n: int) -> NDArray[np.float64]:
    """Logarithms of 0! ... n!, (n + 1,)."""
    return np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, n + 1)))])


def probabilities(n: int, p: float) -> NDArray[np.float64]:
    """P(X = k) of ``n`` trials for k = 0 ... n, (n + 1,)."""
    if p <= 0 or p >= 1:
        certain = np.zeros(n + 1)
        certain[0 if p <= 0 else n] = 1.0
        return certain
    logs, k = log_factorials(n), np.arange(n + 1)
    choose = logs[n] - logs - logs[::-1]
    return np.asarray(np.exp(choose + k * math.log(p) + (n - k) * math.log1p(-p)))


def half_tail(n: int, k: int) -> float:
    """P(X <= k) of ``n`` trials of probability 1/2, counted in whole numbers."""
    term = total = 1
    for i in range(1, k + 1):
        term = term * (n + 1 - i) // i
        total += term
    return total / (1 << n)
