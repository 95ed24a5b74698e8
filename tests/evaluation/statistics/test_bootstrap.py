"""The bootstrap of a mean: against scipy and its formula, and how often it is wrong."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from scipy import signal, stats

from farthing.evaluation.statistics import Interval, block_length, bootstrap_mean
from farthing.evaluation.statistics.quantiles import student_quantile
from support.binomial_limits import most_in_binomial_limits


def skewed(n: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).gamma(0.5, 2.0, n) - 0.7


def test_of_single_values_it_is_scipy_s() -> None:
    """Each end within the noise of both: five deviations of a quantile of so many draws."""
    values, draws = skewed(300), 100_000
    found = bootstrap_mean(values, block=1, resamples=draws)
    widened = math.sqrt(300 / 299) * stats.t.ppf(0.975, 299)
    expected = stats.bootstrap(
        (values,),
        np.mean,
        n_resamples=draws,
        batch=1000,
        confidence_level=1 - 2 * stats.norm.sf(widened),
        method="percentile",
        rng=np.random.default_rng(0),
    )
    low, high = expected.confidence_interval
    error = expected.standard_error
    noise = 5 * math.sqrt(2) * error * math.sqrt(0.025 * 0.975 / draws) / stats.norm.pdf(1.96)
    assert abs(found.low - low) < noise
    assert abs(found.high - high) < noise
    assert found.value == values.mean()
    np.testing.assert_allclose(found.standard_error, values.std(ddof=1) / math.sqrt(300))


@pytest.mark.parametrize(("n", "block"), [(100, 1), (100, 7), (96, 8), (31, 15)])
def test_blocks_are_drawn_as_a_plain_loop_draws_them(n: int, block: int) -> None:
    """Its standard error is the spread of the loop's means, in five deviations of theirs."""
    values = np.cumsum(skewed(n))
    rng, around = np.random.default_rng(3), np.concatenate([values, values])
    means = np.empty(4000)
    for draw in range(4000):
        runs = [around[start : start + block] for start in rng.integers(0, n, -(-n // block))]
        runs[-1] = runs[-1][: n - (len(runs) - 1) * block]
        means[draw] = np.concatenate(runs).mean()
    blocks = -(-n // block)
    expected = means.std() * math.sqrt(blocks / (blocks - 1))
    found = bootstrap_mean(values, block=block)
    assert abs(found.standard_error / expected - 1) < 5 * math.sqrt(1 / (2 * 4000))


def test_equal_seeds_give_equal_intervals_and_pieces_change_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = skewed(500)
    found = bootstrap_mean(values, seed=4)
    assert bootstrap_mean(values, seed=4) == found
    assert bootstrap_mean(values, seed=5) != found
    monkeypatch.setattr("farthing.evaluation.statistics.bootstrap._PIECE", 777)
    assert bootstrap_mean(values, seed=4) == found


def test_no_difference_anywhere_is_an_interval_without_width() -> None:
    assert bootstrap_mean(np.zeros(64)) == Interval(0.0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_one_value_that_is_no_number_leaves_no_interval(value: float) -> None:
    found = bootstrap_mean(np.array([1.0, value, 2.0, 3.0]))
    assert not math.isfinite(found.value)
    assert math.isnan(found.low)
    assert math.isnan(found.high)


def test_blocks_grow_with_the_cube_root() -> None:
    assert [block_length(n) for n in (1, 8, 9, 2048, 8192, 10**6)] == [1, 2, 3, 13, 21, 100]


@pytest.mark.parametrize(("n", "block"), [(0, None), (1, None), (10, 0), (10, 6)])
def test_what_cannot_be_resampled_is_refused(n: int, block: int | None) -> None:
    with pytest.raises(ValueError, match=r"half of the values|two values at least"):
        bootstrap_mean(np.ones(n), block=block)


@pytest.mark.parametrize("n", [2, 3, 4, 5, 9])
def test_few_values_give_a_wide_interval(n: int) -> None:
    values = np.arange(n, dtype=np.float64)
    found = bootstrap_mean(values)
    assert 0 <= found.low < found.value < found.high <= n - 1


def test_units_and_ratios_carry_the_interval_along() -> None:
    found = Interval(math.log(2), 0.0, math.log(3), 0.25)
    ratio = found.exponential()
    np.testing.assert_allclose(
        [ratio.value, ratio.low, ratio.high, ratio.standard_error], [2, 1, 3, 0.5]
    )
    assert Interval(800.0, 1.0, 900.0, 2.0).exponential().value == math.inf
    assert Interval(1.0, 0.5, 2.0, 0.25).times(4) == Interval(4.0, 2.0, 8.0, 1.0)


@pytest.mark.parametrize("p", [0.025, 0.05, 0.95, 0.975])
def test_student_s_quantiles_are_scipy_s_from_5_degrees_on(p: float) -> None:
    for freedom in (5, 6, 10, 30, 400):
        found = student_quantile(p, freedom)
        assert abs(found / stats.t.ppf(p, freedom) - 1) < 0.001
    for freedom in (1, 2, 3, 4):
        assert abs(student_quantile(p, freedom)) < abs(stats.t.ppf(p, freedom))


def differences(n: int, correlation: float, rng: np.random.Generator) -> np.ndarray:
    """Of two noisy copies of the same scores: heavy tails, each like its neighbour, mean zero."""
    noise = rng.standard_t(5, (2, n + 100)) * rng.gamma(1.0, 1.0, n + 100)
    mixed = signal.lfilter([1], [1, -correlation], noise[0] - noise[1])
    return np.asarray(mixed[100:])


def seen(intervals: list[Interval]) -> int:
    return sum(not each.low <= 0 <= each.high for each in intervals)


@pytest.mark.parametrize(("n", "correlation"), [(255, 0.0), (2048, 0.0), (2048, 0.2)])
def test_a_null_comparison_shows_a_difference_in_at_most_5_percent(
    n: int, correlation: float
) -> None:
    rng = np.random.default_rng(11)
    intervals = [
        bootstrap_mean(differences(n, correlation, rng), resamples=2000) for _ in range(1000)
    ]
    assert seen(intervals[:200]) <= most_in_binomial_limits(200, 0.05)
    assert seen(intervals) <= most_in_binomial_limits(1000, 0.05)


def test_single_values_show_one_where_neighbours_are_alike() -> None:
    """So the check above can fail, and blocks are what passes it."""
    rng = np.random.default_rng(11)
    series = [differences(2048, 0.4, rng) for _ in range(200)]
    alone = [bootstrap_mean(each, block=1, resamples=500) for each in series]
    assert seen(alone) > most_in_binomial_limits(200, 0.05)
    assert seen([bootstrap_mean(each, resamples=500) for each in series]) < seen(alone) / 2


@pytest.mark.usefixtures("others_garbage")
def test_8192_values_take_less_than_a_second() -> None:
    values = skewed(8192)
    began = time.process_time()
    bootstrap_mean(values)
    assert time.process_time() - began < 1
