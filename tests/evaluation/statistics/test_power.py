"""What a test could have seen: against full enumeration, and against what it then does find."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.power import NormalIndPower

from farthing.evaluation.statistics import (
    bootstrap_mean,
    mcnemar,
    smallest_difference_seen,
    smallest_mean_seen,
    smallest_rate_seen,
)
from farthing.evaluation.statistics.power import power_of_mcnemar
from support.binomial_limits import in_binomial_limits


def enumerated(n: int, difference: float, discordance: float) -> float:
    """Over every number of pairs to either side."""
    rates = [(discordance + difference) / 2, (discordance - difference) / 2, 1 - discordance]
    outcomes = stats.multinomial(n, rates)
    return math.fsum(
        outcomes.pmf([first, second, n - first - second])
        for first, second in product(range(n + 1), repeat=2)
        if first + second <= n and mcnemar(first, second) <= 0.05
    )


@pytest.mark.parametrize(
    ("n", "difference", "discordance"),
    [(5, 0.5, 0.5), (16, 0.45, 0.45), (16, 0.3, 0.5), (24, 0.0, 0.4), (24, 0.2, 1.0), (30, 1, 1)],
)
def test_the_power_of_mcnemar_is_exact(n: int, difference: float, discordance: float) -> None:
    found = power_of_mcnemar(n, difference, discordance)
    np.testing.assert_allclose(found, enumerated(n, difference, discordance), atol=1e-12)


@pytest.mark.parametrize("n", [6, 16, 144, 581])
@pytest.mark.parametrize("discordance", [0.0, 0.1, 0.5])
def test_the_smallest_difference_is_found_in_80_percent_and_no_smaller_one(
    n: int, discordance: float
) -> None:
    seen = smallest_difference_seen(n, discordance)
    assert seen is not None
    assert power_of_mcnemar(n, seen, discordance) >= 0.8
    assert power_of_mcnemar(n, seen - 2e-6, discordance) < 0.8


def test_five_questions_show_nothing_and_more_that_cancel_out_less() -> None:
    assert smallest_difference_seen(5) is None
    assert smallest_difference_seen(16, 0.9) is not None
    seen = [smallest_difference_seen(581, share) for share in (0.0, 0.05, 0.2, 0.6)]
    assert seen == sorted(seen)
    assert len(set(seen)) == 4


def test_a_rate_shows_at_least_once_in_80_percent() -> None:
    for n in (1, 144, 8192):
        np.testing.assert_allclose(stats.binom.sf(0, n, smallest_rate_seen(n)), 0.8, rtol=1e-12)


def test_the_mean_that_is_seen_is_that_of_statsmodels() -> None:
    """Statsmodels counts the other side of zero too, a millionth here."""
    n, deviation = 400, 3.0
    seen = smallest_mean_seen(deviation / math.sqrt(n))
    power = NormalIndPower(ddof=0).power(seen / deviation, n, alpha=0.05, ratio=0)
    np.testing.assert_allclose(power, 0.8, atol=2e-6)


@pytest.fixture(scope="module")
def planted() -> list[np.ndarray]:
    """400 times 8,192 positions, one point of agreement apart, at 10 % of them only one agrees."""
    rng = np.random.default_rng(5)
    rates = [0.055, 0.045, 0.9]
    return [
        rng.permutation(np.repeat([1.0, -1.0, 0.0], rng.multinomial(8192, rates)))
        for _ in range(400)
    ]


def test_a_planted_point_of_agreement_is_found_as_often_as_is_said(
    planted: list[np.ndarray],
) -> None:
    """8,192 positions are just enough for it."""
    seen = smallest_difference_seen(8192, 0.1)
    assert seen is not None
    assert round(seen, 4) == 0.0099
    found = sum(mcnemar(int((each > 0).sum()), int((each < 0).sum())) <= 0.05 for each in planted)
    assert in_binomial_limits(found, 400, power_of_mcnemar(8192, 0.01, 0.1))


def test_so_it_is_by_the_bootstrap(planted: list[np.ndarray]) -> None:
    found = sum(bootstrap_mean(each, resamples=1000).low > 0 for each in planted)
    error = math.sqrt((0.1 - 0.01**2) / 8192)
    assert in_binomial_limits(found, 400, stats.norm.sf(1.96 - 0.01 / error))
