"""Contexts of more than two of the spans that attention combines: nothing of this changes a bit."""

from __future__ import annotations

import random
from typing import Any

import pytest

from support.engine_grid import BrokenOffError, Grid
from support.engine_requests import Spec
from support.engine_scenarios import choices

SPAN = 1024
LENGTH = 2 * SPAN + 75
POOL = {"num_blocks": 330}


def long_spec(grid: Grid, length: int = LENGTH, **params: Any) -> Spec:
    """Always of the same beginning."""
    given = {"temperature": 0.8, "seed": 3, "logprobs": 1, **params}
    return grid.spec(grid.prompt(77, LENGTH)[:length], 6, **given)


def kinds(grid: Grid) -> list[Spec]:
    """Drawn, and the highest logit."""
    return [long_spec(grid), long_spec(grid, LENGTH - 30, temperature=0, logprobs=None)]


@pytest.mark.parametrize(("rows", "num_threads"), [(512, 1), (2400, 2), (300, 3), (61, 2)])
def test_in_chunks_beside_neighbours(grid: Grid, rows: int, num_threads: int) -> None:
    run = grid.run(num_threads=num_threads, max_num_batched_tokens=rows, **POOL)
    rng = random.Random(rows)
    specs = [*kinds(grid), *(grid.neighbour(rng) for _ in range(5))]
    rng.shuffle(specs)
    for spec in specs:
        run.submit(spec)
        run.step()
    grid.finish_and_check(run)
    assert run.runner.num_rows > LENGTH


def test_by_chunks_of_sixteen_and_of_one(tiny: Grid) -> None:
    run = tiny.run(max_num_batched_tokens=1, **POOL)
    run.submit(kinds(tiny)[0])
    tiny.finish_and_check(run)
    assert run.now == LENGTH + 5
    run = tiny.run(max_num_batched_tokens=16, **POOL)
    run.submit(kinds(tiny)[1])
    tiny.finish_and_check(run)


@pytest.mark.parametrize("shared", [1000, SPAN, SPAN + 16, 2 * SPAN - 1, 2 * SPAN, LENGTH - 1])
def test_found_in_the_prefix_cache(tiny: Grid, shared: int) -> None:
    """The rest is computed one row a pass, two, and many."""
    run = tiny.run(**POOL)
    run.submit(long_spec(tiny, shared, temperature=0))
    run.finish()
    (request,) = run.submit(long_spec(tiny))
    tiny.finish_and_check(run)
    assert request.num_cached_tokens == min(shared, (shared + 5) // 16 * 16)


@pytest.mark.parametrize("every", [2, 3])
def test_preempted(grid: Grid, every: int) -> None:
    rng = random.Random(every)
    run = grid.run(**POOL)
    for spec in kinds(grid):
        run.submit(spec)

    def preempt() -> None:
        if run.now % every == 0 and run.scheduler.running:
            run.scheduler.preempt(rng.choice(run.scheduler.running))

    grid.finish_and_check(run, preempt)
    assert run.scheduler.num_preemptions > 2


def test_evicted_and_computed_again(tiny: Grid) -> None:
    run = tiny.run(num_blocks=150)
    for spec in [*kinds(tiny), tiny.spec(tiny.prompt(5, 700), 3), kinds(tiny)[0]]:
        (request,) = run.submit(spec)
        run.finish()
    tiny.check(run)
    assert SPAN < request.num_cached_tokens < LENGTH - 16


def test_choices_of_a_long_prompt(grid: Grid) -> None:
    run = choices(grid, long_spec(grid, n=2), **POOL)
    assert run.runner.num_copies == 1


@pytest.mark.parametrize(
    "settings",
    [
        {"batching": "static", **POOL},
        {"kv": "contiguous", "max_model_len": 2200, "num_blocks": 2 * 138},
        {"prefix_caching": False, **POOL},
        {"use_cache": False, "max_num_batched_tokens": 2400, **POOL},
    ],
    ids=["static", "contiguous", "no prefix cache", "no cache"],
)
def test_switches(tiny: Grid, settings: dict[str, Any]) -> None:
    run = tiny.run(**settings)
    specs = [*kinds(tiny), tiny.subjects[3]] if settings.get("use_cache", True) else kinds(tiny)[:1]
    for spec in specs:
        run.submit(spec)
    tiny.finish_and_check(run)


def test_passes_that_are_broken_off(tiny: Grid) -> None:
    run = tiny.run(**POOL)

    def fail(number: int, over: bool) -> None:
        if number in (1, 3, 9) and over is (number == 3):
            raise BrokenOffError

    run.runner.fail = fail
    for spec in kinds(tiny):
        run.submit(spec)
    tiny.finish_and_check(run)
    assert run.broken_off == 3
