"""Shares and their bounds: against published figures and statsmodels."""

from __future__ import annotations

import numpy as np
import pytest
from statsmodels.stats.proportion import proportion_confint

from farthing.evaluation.statistics import wilson

# Newcombe 1998, "Two-sided confidence intervals for the single proportion", table I, method 3.
PUBLISHED = [
    (81, 263, 0.2553, 0.3662),
    (15, 148, 0.0624, 0.1605),
    (0, 20, 0.0000, 0.1611),
    (1, 29, 0.0061, 0.1718),
]
COUNTS = [(0, 1), (1, 1), (0, 144), (2, 144), (72, 144), (144, 144), (81, 8192), (8190, 8192)]


@pytest.mark.parametrize(("count", "total", "low", "high"), PUBLISHED)
def test_wilson_intervals_are_the_published_ones(
    count: int, total: int, low: float, high: float
) -> None:
    found = wilson(count, total)
    assert (round(found.low, 4), round(found.high, 4)) == (low, high)
    mirrored = wilson(total - count, total)
    assert (round(1 - mirrored.high, 4), round(1 - mirrored.low, 4)) == (low, high)
    assert found.value == count / total


def test_an_interval_ends_where_a_share_does() -> None:
    assert wilson(0, 7).low == 0
    assert wilson(7, 7).high == 1
    assert 0 < wilson(0, 7).high < 1
    assert 0 < wilson(7, 7).low < 1


@pytest.mark.parametrize(("count", "total"), COUNTS)
def test_bounds_are_those_of_statsmodels(count: int, total: int) -> None:
    found = wilson(count, total)
    expected = proportion_confint(count, total, method="wilson")
    np.testing.assert_allclose([found.low, found.high], expected, rtol=1e-10, atol=1e-15)
