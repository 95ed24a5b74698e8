"""The exact test of discordant pairs, against statsmodels and scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar as statsmodels_mcnemar

from farthing.evaluation.statistics import mcnemar
from farthing.evaluation.statistics.mcnemar import largest_minorities

PAIRS = [(0, 0), (1, 0), (0, 5), (0, 6), (3, 12), (10, 10), (30, 61), (400, 460), (3000, 4000)]


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_p_is_that_of_statsmodels_and_scipy(first: int, second: int) -> None:
    found = mcnemar(first, second)
    assert mcnemar(second, first) == found
    if first + second:
        expected = stats.binomtest(first, first + second).pvalue
        np.testing.assert_allclose(found, expected, rtol=1e-9)
    expected = statsmodels_mcnemar([[7, first], [second, 9]], exact=True).pvalue
    np.testing.assert_allclose(found, 1.0 if np.isnan(expected) else expected, rtol=1e-9)


@pytest.mark.parametrize(("first", "second"), PAIRS)
@pytest.mark.parametrize("effect", [1.3, 2.0, 7.7])
def test_a_design_effect_leaves_so_many_times_fewer(first: int, second: int, effect: float) -> None:
    """Between the tests of the counts divided by it, rounded either way, and nearer to none."""
    found = mcnemar(first, second, effect)
    assert mcnemar(second, first, effect) == found
    fewer, more = sorted((first, second))
    if fewer < more:
        assert found >= mcnemar(math.floor(fewer / effect), math.ceil(more / effect))
        exact = stats.norm.sf((more - fewer) / math.sqrt((more + fewer) * effect)) * 2
        assert found >= exact * 0.9
    assert found >= mcnemar(first, second)


@pytest.mark.parametrize("alpha", [0.05, 0.01, 0.3])
def test_what_is_called_a_difference_is_what_p_says(alpha: float) -> None:
    minorities = largest_minorities(90, alpha)
    for discordant, minority in enumerate(minorities):
        called = [k for k in range(discordant // 2 + 1) if mcnemar(k, discordant - k) <= alpha]
        assert minority == max(called, default=-1), discordant


def test_the_least_that_can_be_found_is_six_against_none() -> None:
    assert mcnemar(5, 0) > 0.05 > mcnemar(6, 0)
    assert largest_minorities(6).tolist() == [-1] * 6 + [0]
