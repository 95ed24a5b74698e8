"""The model of step times against times made up with noise, hiccups and drift."""

from __future__ import annotations

import math
from random import Random
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farthing.server.admission.step_times import (
    LinearStepTimes,
    first_guess,
    non_negative_least_squares,
)

A, B, C = 0.040, 0.0015, 0.004


def true_seconds(decode: int, prefill: int) -> float:
    return A + B * decode + C * prefill


def noisy(rng: Random, decode: int, prefill: int, hiccups: float = 0.05) -> float:
    seconds = true_seconds(decode, prefill) * math.exp(rng.gauss(0, 0.1))
    return seconds * rng.uniform(5, 50) if rng.random() < hiccups else seconds


def mixed_rows(rng: Random) -> tuple[int, int]:
    decode = rng.randint(0, 32)
    prefill = rng.choice((0, 0, rng.randint(1, 480)))
    return (decode, prefill) if decode or prefill else (1, 0)


def worst_relative_error(model: LinearStepTimes, scale: float = 1.0) -> float:
    shapes = [(1, 0), (8, 0), (32, 0), (0, 512), (32, 480), (4, 100)]
    return max(abs(model.predict(*s) / (scale * true_seconds(*s)) - 1) for s in shapes)


@pytest.mark.parametrize("seed", range(5))
def test_finds_the_three_costs_among_noise_and_hiccups(seed: int) -> None:
    rng, model = Random(seed), LinearStepTimes()
    for _ in range(600):
        rows = mixed_rows(rng)
        model.observe(*rows, noisy(rng, *rows))
    # Noise of 10 % over the 16 steps that a kind remembers leaves 2.5 %: four times that.
    assert worst_relative_error(model) < 0.1


def test_plain_means_would_not_bear_the_hiccups() -> None:
    """What the test above holds out against: an ordinary mean is nearly three times too high."""
    rng = Random(0)
    ratios = [noisy(rng, 32, 0) / true_seconds(32, 0) for _ in range(600)]
    assert sum(ratios) / len(ratios) > 2
    assert abs(median(ratios) - 1) < 0.05


def test_a_run_of_one_kind_of_step_leaves_what_is_known_of_the_others() -> None:
    rng, model = Random(3), LinearStepTimes()
    for _ in range(300):
        rows = mixed_rows(rng)
        model.observe(*rows, noisy(rng, *rows))
    for _ in range(20_000):
        model.observe(32, 0, noisy(rng, 32, 0))
    assert worst_relative_error(model) < 0.2


def test_follows_a_machine_that_becomes_slower_and_faster_again() -> None:
    rng, model = Random(4), LinearStepTimes()
    for scale in (1.0, 3.0, 1.0):
        for _ in range(1000):
            rows = mixed_rows(rng)
            model.observe(*rows, scale * noisy(rng, *rows))
        # Off by three at first; each of some forty kinds has had a few steps since.
        assert worst_relative_error(model, scale) < 1 / 3, scale


def test_follows_within_a_hundred_steps_where_it_decodes_only() -> None:
    rng, model = Random(5), LinearStepTimes()
    for _ in range(500):
        rows = mixed_rows(rng)
        model.observe(*rows, noisy(rng, *rows))
    for _ in range(100):
        model.observe(32, 0, 3 * noisy(rng, 32, 0))
    assert abs(model.predict(32, 0) / (3 * true_seconds(32, 0)) - 1) < 0.25


def test_one_kind_of_step_says_mostly_what_any_step_costs() -> None:
    model = LinearStepTimes()
    for _ in range(50):
        model.observe(1, 0, 0.1)
    assert model.predict(1, 0) == pytest.approx(0.1, rel=0.01)
    assert model.predict(32, 0) < 0.15


@given(
    st.lists(
        st.tuples(st.integers(0, 64), st.integers(0, 512), st.floats(0, 1e4)),
        max_size=60,
    )
)
def test_whatever_it_sees_costs_are_not_negative(steps: list[tuple[int, int, float]]) -> None:
    model = LinearStepTimes()
    for decode, prefill, seconds in steps:
        model.observe(decode, prefill, seconds)
        assert min(model.coefficients) >= 0
        assert all(map(math.isfinite, model.coefficients))
        few, many = model.predict(1, 0), model.predict(32, 100)
        assert 0 < few <= many


def test_least_squares_are_those_of_a_fine_grid() -> None:
    rng = Random(1)
    grid = [i / 20 for i in range(41)]
    held_back = 0
    for _ in range(20):
        rows = [[rng.gauss(0, 1) for _ in range(3)] for _ in range(6)]
        goal = [rng.gauss(0, 1) for _ in rows]
        matrix = [[sum(r[i] * r[j] for r in rows) for j in range(3)] for i in range(3)]
        vector = [sum(r[i] * g for r, g in zip(rows, goal, strict=True)) for i in range(3)]

        def loss(x: tuple[float, ...], rows=rows, goal=goal) -> float:
            parts = (sum(a * b for a, b in zip(r, x, strict=True)) for r in rows)
            return sum((p - g) ** 2 for p, g in zip(parts, goal, strict=True))

        found = non_negative_least_squares(matrix, vector)
        assert min(found) >= 0
        held_back += min(found) == 0
        best = min(loss((a, b, c)) for a in grid[::2] for b in grid[::2] for c in grid[::2])
        assert loss(found) <= best + 1e-12
    assert held_back > 5  # or the bound was not tried


@pytest.mark.parametrize(
    ("decode", "prefill", "seconds"),
    [(1, 0, 0.00897), (8, 0, 0.0202), (32, 0, 0.0743), (0, 512, 0.882)],
)
def test_the_first_guess_is_of_the_size_of_what_was_measured(
    decode: int, prefill: int, seconds: float
) -> None:
    """Qwen2.5-Coder 0.5B in q4_0, AVX2, two threads: bench/LOG.md, 2026-11-29."""
    model = LinearStepTimes(first_guess(278_000_000, 2, 0.0))
    assert 0.5 < model.predict(decode, prefill) / seconds < 2.0
