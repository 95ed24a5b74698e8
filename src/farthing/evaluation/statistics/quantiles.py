"""Quantiles of the normal distribution and of Student's."""

from __future__ import annotations

from statistics import NormalDist

_NORMAL = NormalDist()

Z_95 = 1.959963984540054
"""Quantile of the normal distribution that leaves 2.5 % above it."""


def normal_cdf(z: float) -> float:
    """Probability below ``z``."""
    return _NORMAL.cdf(z)


def normal_quantile(p: float) -> float:
    """``z`` with the probability ``p`` below it, 0 < p < 1."""
    return _NORMAL.inv_cdf(p)


def student_quantile(p: float, freedom: int) -> float:
    """Student's quantile with ``freedom`` degrees, expanded about the normal one.

    Abramowitz and Stegun 1964, 26.7.5. Of the quantiles that leave 2.5 or 5 % above them it is
    right to 0.1 % from 5 degrees on, and too small with less.
    """
    z, v = normal_quantile(p), float(freedom)
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return sum(term / v**power for power, term in enumerate(terms))
