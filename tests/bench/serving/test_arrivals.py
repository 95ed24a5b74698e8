"""Arrival processes have the rate and the spread that they are named by."""

from __future__ import annotations

import math

import numpy as np
import pytest

from farthing.bench.serving.arrivals import Arrivals
from farthing.errors import InvalidParameterError

COUNT = 20_000


def gaps(arrivals: Arrivals, seed: int = 3) -> np.ndarray:
    times = arrivals.times(COUNT, seed)
    assert times == sorted(times)
    return np.diff([0.0, *times])


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_gaps_have_the_rate_and_the_variation_of_their_burstiness(burstiness: float) -> None:
    each = gaps(Arrivals(rate=8.0, burstiness=burstiness))
    assert each.sum() == pytest.approx(COUNT / 8)  # stretched to be so
    variation = each.std() / each.mean()
    # Of a gamma distribution; its kurtosis bounds the standard error of the deviation.
    error = math.sqrt((2 + 6 / burstiness) / 4 / COUNT)
    assert variation == pytest.approx(1 / math.sqrt(burstiness), rel=5 * error)


def test_gaps_do_not_depend_on_each_other() -> None:
    each = gaps(Arrivals(rate=8.0))
    assert abs(np.corrcoef(each[:-1], each[1:])[0, 1]) < 5 / math.sqrt(COUNT)


def test_a_seed_gives_the_same_arrivals() -> None:
    poisson = Arrivals(rate=2.0)
    assert poisson.times(50, 1) == poisson.times(50, 1) != poisson.times(50, 2)


def test_even_and_together() -> None:
    assert Arrivals().times(3, 0) == [0.0, 0.0, 0.0]
    even = Arrivals(rate=4.0, burstiness=math.inf).times(8, 0)
    assert even == pytest.approx([0.25 * (i + 1) for i in range(8)])
    bursts = Arrivals(burst_size=3, burst_interval=2.5)
    assert bursts.times(8, 0) == [0, 0, 0, 2.5, 2.5, 2.5, 5, 5]


@pytest.mark.parametrize(("kind", "middle"), [("linear", 26.0), ("exponential", 10.0)])
def test_a_ramp_rises_between_its_ends(kind: str, middle: float) -> None:
    ramp = Arrivals(ramp_up=kind, start_rate=2.0, end_rate=50.0, burstiness=math.inf)  # type: ignore[arg-type]
    rates = 1 / gaps(ramp)
    assert (np.diff(rates) > 0).all()
    assert rates[0] == pytest.approx(2.0)
    assert rates[-1] == pytest.approx(50.0, rel=1e-6)
    assert rates[COUNT // 2] == pytest.approx(middle, rel=1e-3)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"rate": 0.0}, "--request-rate"),
        ({"rate": math.nan}, "--request-rate"),
        ({"burstiness": -1.0}, "--burstiness"),
        ({"burst_size": 3}, "--burst-interval"),
        ({"burst_size": 3, "burst_interval": 1.0, "rate": 2.0}, "--burst-size"),
        ({"start_rate": 1.0}, "--ramp-up-strategy"),
        ({"ramp_up": "linear", "start_rate": 1.0}, "--ramp-up-end-rps"),
        ({"ramp_up": "linear", "start_rate": 3.0, "end_rate": 2.0}, "rising"),
        ({"ramp_up": "linear", "start_rate": 0.0, "end_rate": 2.0}, "above 0"),
        ({"ramp_up": "linear", "start_rate": 1.0, "end_rate": 2.0, "rate": 1.0}, "--request-rate"),
    ],
)
def test_what_is_no_process_is_refused(given: dict[str, float], problem: str) -> None:
    with pytest.raises(InvalidParameterError, match=problem):
        Arrivals(**given)  # type: ignore[arg-type]
