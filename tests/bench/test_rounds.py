"""Shares of what the machine can do, round by round."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import pytest

from farthing import machine
from farthing.bench.limits import Limits, Rates, beyond_cache_bytes, combine
from farthing.bench.rounds import MOST_REPEATS, Case, Measurement, Spread, measure, shares
from farthing.program.native import thread_team
from farthing.program.work import Work

RATES = Rates(10.0, {"narrow": 100.0, "dot": 200.0}, {"fma": 50.0})


def case(seconds: Callable[[], float], work: Work) -> Case:
    return Case("case", "pass", work, 1, seconds)


@pytest.fixture(scope="module")
def limits() -> Limits:
    return Limits(thread_team(2), 8 << 20)


def test_a_share_is_the_least_time_by_the_time_taken() -> None:
    work = Work(weight_bytes=3 * 10**9, kv_bytes=10**9, integer_macs=10**11, float_macs=5 * 10**9)
    memory, compute = shares(work, 2.0, RATES)
    assert memory == pytest.approx(0.4 / 2)  # 4 GB at 10 GB/s
    assert compute == pytest.approx((0.5 + 0.1) / 2)  # the fastest loop of each kind, in turns


@pytest.mark.parametrize(
    ("memory", "compute", "binding"), [(0.9, 0.2, "memory"), (0.1, 0.2, "compute")]
)
def test_the_greater_share_binds(memory: float, compute: float, binding: str) -> None:
    spreads = [Spread.of([share]) for share in (memory, compute)]
    m = Measurement(case(float, Work()), 1, Spread.of([1.0]), *spreads, RATES)
    assert m.binding == binding
    assert m.share.median == max(memory, compute)


def test_rates_are_combined_number_by_number() -> None:
    other = Rates(30.0, {"narrow": 300.0, "dot": 100.0}, {"fma": 70.0})
    third = Rates(20.0, {"narrow": 0.0, "dot": 150.0}, {"fma": 60.0})
    assert combine([RATES, other], "mean") == Rates(20.0, {"narrow": 200, "dot": 150}, {"fma": 60})
    middle = Rates(20.0, {"narrow": 100, "dot": 150}, {"fma": 60})
    assert combine([RATES, other, third]) == middle
    assert RATES.best_integer == ("dot", 200.0)
    assert RATES.best_floating == ("fma", 50.0)


def test_every_case_is_run_in_every_round_after_one_that_does_not_count(limits: Limits) -> None:
    times = {"a": iter([9.0, *[1.0] * 7, *[3.0] * 7, *[2.0] * 7]), "b": iter([9.0] * 100)}
    said: list[str] = []
    cases = [
        Case(name, "pass", Work(weight_bytes=10**9), 1, lambda it=it: next(it))  # type: ignore[misc]
        for name, it in times.items()
    ]
    a, b = measure(cases, limits, 3, said.append)
    assert MOST_REPEATS == 7
    assert (a.seconds, b.seconds) == (Spread(2.0, 1.0, 3.0), Spread(9.0, 9.0, 9.0))
    assert a.rounds == 3
    assert said[:4] == [
        "warming up: a",
        "warming up: b",
        "round 1 of 3: a",
        "round 1 of 3: b",
    ]
    assert len(said) == 8
    assert a.memory_share.median > b.memory_share.median > 0
    assert a.compute_share == Spread(0.0, 0.0, 0.0)


def test_limits_are_plausible_and_of_all_loops(limits: Limits) -> None:
    rates = [limits.probe() for _ in range(3)]
    for r in rates:
        assert 0.01 < r.read < 10_000
        assert set(r.integer) == set(rates[0].integer)
        assert all(0.001 < rate < 1e6 for rate in (*r.integer.values(), *r.floating.values()))
    wide = statistics.median(r.best_integer[1] for r in rates)
    if machine.active_isa() != "scalar":
        assert wide > statistics.median(r.best_floating[1] for r in rates)  # bytes against floats


def test_what_must_come_from_memory_is_more_than_the_cache_holds() -> None:
    nbytes = beyond_cache_bytes()
    assert nbytes <= machine.memory_available()
    if machine.memory_available() > 4 << 30:
        assert nbytes >= max(128 << 20, 4 * machine.last_level_cache_bytes())
