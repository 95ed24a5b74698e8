"""What a comparison could have seen.

Everywhere: the smallest true difference that is found in 80 % of such samples, by a test at the 5 %
level, two-sided; a rate of which none is expected, by one event. "No difference" means little
without it.
"""

from __future__ import annotations

import math

import numpy as np

from farthing.evaluation.statistics.binomial import log_factorials, probabilities
from farthing.evaluation.statistics.mcnemar import largest_minorities
from farthing.evaluation.statistics.quantiles import Z_95, normal_quantile
from farthing.evaluation.statistics.roots import first_at_least

POWER = 0.8


def smallest_mean_seen(standard_error: float, power: float = POWER) -> float:
    """The smallest mean that a 95 % interval of this width leaves zero out for."""
    return (Z_95 + normal_quantile(power)) * standard_error


def smallest_rate_seen(n: int, power: float = POWER) -> float:
    """The smallest rate of an event that shows at least once in ``n``, where none is expected."""
    return -math.expm1(math.log1p(-power) / n)


def smallest_difference_seen(
    n: int, discordance: float = 0.0, power: float = POWER
) -> float | None:
    """The smallest share of ``n`` questions by which :func:`mcnemar` finds one model better.

    ``discordance`` is the share of questions that only one of the two gets right, as observed; the
    more there are that cancel out, the more is needed. 0 is the best case: every question that
    changes does so in one direction. None where even a difference in all ``n`` would not be found.

    Exact over the distributions of the discordant pairs and of their directions (Connor 1987 has
    the approximation).
    """
    test = _Test(n)
    if test.power(1.0, discordance) < power:
        return None
    # To a millionth.
    return first_at_least(lambda each: test.power(each, discordance), power, 0.0, 1.0, halvings=20)


def power_of_mcnemar(n: int, difference: float, discordance: float) -> float:
    """How likely :func:`mcnemar` finds ``difference`` in ``n`` questions.

    ``discordance`` is at least ``difference``; where it is less, ``difference`` is taken for it.
    """
    return _Test(n).power(difference, discordance)


class _Test:
    """McNemar's test of ``n`` questions, and when it finds something."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._logs = log_factorials(n)
        self._minorities = largest_minorities(n)

    def power(self, difference: float, discordance: float) -> float:
        discordance = max(discordance, difference)
        if discordance <= 0:
            return 0.0
        weights = probabilities(self._n, discordance)
        share = (1 + difference / discordance) / 2
        # What is left out is less likely than the last digit of a probability.
        counts = np.flatnonzero((weights > 1e-18) & (self._minorities >= 0))
        found = (float(weights[m]) * self._found(int(m), share) for m in counts)
        return math.fsum(found)

    def _found(self, discordant: int, share: float) -> float:
        """How likely it is when ``share`` of the discordant pairs are expected on one side."""
        if share >= 1:
            return 1.0
        last = int(self._minorities[discordant]) + 1
        k, logs = np.arange(last), self._logs
        rest = discordant - k
        choose = logs[discordant] - logs[:last] - logs[rest]
        more, less = math.log(share), math.log1p(-share)
        few = np.exp(choose + k * more + rest * less)
        many = np.exp(choose + k * less + rest * more)
        return float(few.sum() + many.sum())
