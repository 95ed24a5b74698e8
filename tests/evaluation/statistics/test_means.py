"""Means of independent observations, and their standard errors in other units."""

from __future__ import annotations

import math

import numpy as np

from farthing.evaluation.statistics import Estimate, mean


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
