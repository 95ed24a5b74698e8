"""Two one-sided tests: published intervals, the likelihood itself, and how often they are wrong."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import optimize, stats
from statsmodels.stats.weightstats import ttost_paired

from farthing.evaluation.statistics import equivalence
from farthing.evaluation.statistics.equivalence import _interval, _score


def test_intervals_are_the_published_ones() -> None:
    """Fagerland, Lydersen and Laake 2014 (Statistics in Medicine 33), 1 and 7 pairs of 21."""
    low, high = _interval(1, 7, 21, 0.95, 0.0)
    assert (round(low, 3), round(high, 3)) == (-0.517, -0.026)
    mirrored = _interval(7, 1, 21, 0.95, 0.0)
    np.testing.assert_allclose(mirrored, (-high, -low), atol=1e-12)


@pytest.mark.parametrize(
    ("first", "second", "n", "difference"),
    [(1, 7, 21, 0.1), (1, 7, 21, -0.1), (50, 52, 8192, 0.01), (0, 3, 40, 0.05), (3, 0, 40, -0.2)],
)
def test_the_score_is_that_of_the_likeliest_rates(
    first: int, second: int, n: int, difference: float
) -> None:
    """Found by search, where the formula solves an equation."""

    def unlikelihood(rarer: float) -> float:
        rates = np.array([rarer + difference, rarer, 1 - 2 * rarer - difference])
        return -float(stats.multinomial(n, rates).logpmf([first, second, n - first - second]))

    bounds = (max(0, -difference) + 1e-12, (1 - difference) / 2 - 1e-12)
    rarer = optimize.minimize_scalar(unlikelihood, bounds=bounds, options={"xatol": 1e-13}).x
    variance = (2 * rarer + difference - difference**2) / n
    expected = ((first - second) / n - difference) / math.sqrt(variance)
    # The search finds where a flat function is flattest: half of its digits.
    np.testing.assert_allclose(_score(first, second, n, difference, 0.0), expected, rtol=1e-6)


PAIRS = [(50, 52, 8192), (10, 90, 8192), (0, 0, 144), (0, 0, 361), (2, 3, 144), (400, 300, 8192)]


@pytest.mark.parametrize(("first", "second", "n"), PAIRS)
@pytest.mark.parametrize("margin", [0.005, 0.01, 0.02, 0.1])
def test_the_interval_lies_within_the_margin_just_where_p_says_so(
    first: int, second: int, n: int, margin: float
) -> None:
    found = equivalence(first, second, n, margin)
    assert found.equivalent == (-margin < found.low90 and found.high90 < margin)
    assert found.low90 < found.difference < found.high90
    assert found.equivalent == (found.p < 0.05)
    other = equivalence(second, first, n, margin)
    assert (other.p, other.equivalent) == (found.p, found.equivalent)


@pytest.mark.parametrize(("first", "second", "n"), [p for p in PAIRS if p[0]])
@pytest.mark.parametrize("margin", [0.005, 0.01, 0.02, 0.1])
def test_statsmodels_decides_the_same(first: int, second: int, n: int, margin: float) -> None:
    """By its t tests of the differences, for pairs enough to be normal."""
    differences = np.repeat([1.0, -1.0, 0.0], [first, second, n - first - second])
    p = ttost_paired(differences, np.zeros(n), -margin, margin)[0]
    assert (p < 0.05) == equivalence(first, second, n, margin).equivalent


def size(n: int, margin: float, discordance: float) -> float:
    """How often two models that differ by the margin are called equivalent: every outcome."""
    share = (1 + margin / discordance) / 2
    total = 0.0
    for pairs in range(n + 1):
        weight = stats.binom.pmf(pairs, n, discordance)
        if weight < 1e-9:
            continue
        low, high = -1, pairs  # the most of them on the first's side that still pass
        while low < high:
            middle = (low + high + 1) // 2
            first = (middle, pairs - middle, n, margin)
            if stats.norm.cdf(_score(*first, 0.5)) < 0.05:
                low = middle
            else:
                high = middle - 1
        total += weight * stats.binom.cdf(low, pairs, share)
    return total


@pytest.mark.parametrize("n", [50, 144, 268, 361, 581, 2048])
@pytest.mark.parametrize("margin", [0.01, 0.05])
@pytest.mark.parametrize("spread", [1.0, 1.2, 2.0, 8.0])
def test_models_that_differ_by_the_margin_pass_in_at_most_5_percent(
    n: int, margin: float, spread: float
) -> None:
    assert size(n, margin, margin * spread) <= 0.05


def test_without_the_correction_they_pass_more_often() -> None:
    """268 questions and none that differs, which has a probability of 6.8 %."""
    assert stats.norm.cdf(_score(0, 0, 268, 0.01, 0.0)) < 0.05
    assert round(0.99**268, 3) == 0.068
    assert not equivalence(0, 0, 268, 0.01).equivalent


def test_the_margin_of_a_point_takes_some_pairs_to_show_and_8192_are_enough() -> None:
    assert not equivalence(0, 0, 360, 0.01).equivalent
    assert equivalence(0, 0, 361, 0.01).equivalent
    rng = np.random.default_rng(7)
    pairs = rng.multinomial(8192, [0.01, 0.01, 0.98], 400)
    found = sum(equivalence(int(a), int(b), 8192, 0.01).equivalent for a, b, _ in pairs)
    assert found == 400  # margin / standard error is 6.4
