"""Whether two models differ by less than matters."""

from __future__ import annotations

import math
from dataclasses import dataclass

from farthing.evaluation.statistics.quantiles import normal_cdf, normal_quantile
from farthing.evaluation.statistics.roots import first_at_least


@dataclass(frozen=True, slots=True)
class Equivalence:
    """The first model's share less the second's, and whether it lies within the margin."""

    difference: float
    low90: float
    high90: float
    p: float
    margin: float
    equivalent: bool


def equivalence(only_first: int, only_second: int, n: int, margin: float) -> Equivalence:
    """Two one-sided tests, each at 5 %, that two models' shares of ``n`` differ by less.

    Schuirmann 1987: ``equivalent`` is that the 90 % interval lies within ``margin`` to both sides,
    and ``p`` the larger of the two. ``only_first`` and ``only_second`` count what one of the two
    alone gets right.

    By Tango's score statistic (1998), since Wald's calls no discordant pairs a certainty, with a
    correction of half a pair for its being discrete: without it, two models that differ by the
    margin pass in up to 6.8 % of samples. Pairs are taken as independent.
    """
    correction = 0.5
    low90, high90 = _interval(only_first, only_second, n, 0.90, correction)
    p = max(
        normal_cdf(_score(only_second, only_first, n, margin, correction)),
        normal_cdf(_score(only_first, only_second, n, margin, correction)),
    )
    return Equivalence((only_first - only_second) / n, low90, high90, p, margin, p < 0.05)


def _interval(
    only_first: int, only_second: int, n: int, confidence: float, correction: float
) -> tuple[float, float]:
    """Score interval of the first model's share of ``n`` less the second's (Tango 1998)."""
    z = normal_quantile((1 + confidence) / 2)

    def high(first: int, second: int) -> float:
        return first_at_least(
            lambda difference: -_score(first, second, n, difference, correction),
            z,
            (first - second) / n,
            1.0,
        )

    return -high(only_second, only_first), high(only_first, only_second)


def _score(first: int, second: int, n: int, difference: float, correction: float) -> float:
    """How many standard errors the observed difference is above ``difference``, from 0 up.

    The error is that of the likeliest rates which differ by ``difference``. The correction moves
    the observed difference towards it, not past it.
    """
    a = 2 * n
    b = (2 * n - first + second) * difference - first - second
    c = -second * difference * (1 - difference)
    rarer = (math.sqrt(max(0.0, b * b - 4 * a * c)) - b) / (2 * a)
    variance = n * (2 * rarer + difference * (1 - difference))
    distance = first - second - n * difference
    distance = math.copysign(max(0.0, abs(distance) - correction), distance)
    if distance == 0:
        return 0.0
    return distance / math.sqrt(variance) if variance > 0 else math.copysign(math.inf, distance)
