"""Standard errors and intervals, against published figures and exact arithmetic."""

from __future__ import annotations

import math

import numpy as np
import pytest

from farthing.evaluation.statistics import Estimate, mean, wilson

# Newcombe 1998, "Two-sided confidence intervals for the single proportion", table I, method 3.
PUBLISHED = [
    (81, 263, 0.2553, 0.3662),
    (15, 148, 0.0624, 0.1605),
    (0, 20, 0.0000, 0.1611),
    (1, 29, 0.0061, 0.1718),
]


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


def test_the_error_of_a_mean_is_that_of_the_sample() -> None:
    """Nine values whose sample variance is 9, so that all is exact."""
    values = np.array([-3.0, 3.0, -3.0, 3.0, 0.0, -3.0, 3.0, -3.0, 3.0]) + 7
    assert mean(values) == Estimate(7.0, 1.0)


def test_one_observation_says_nothing_of_its_error() -> None:
    assert mean(np.array([2.5])) == Estimate(2.5, None)
    assert Estimate(2.5, None).times(2) == Estimate(5.0, None)
    assert Estimate(0.0, None).exponential() == Estimate(1.0, None)


def test_units_carry_the_error_along() -> None:
    assert Estimate(3.0, 0.5).times(-2.0) == Estimate(-6.0, 1.0)
    perplexity = Estimate(math.log(50), 0.125).exponential()
    assert round(perplexity.value, 9) == 50
    assert perplexity.standard_error == perplexity.value * 0.125
