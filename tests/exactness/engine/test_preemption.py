"""A request whose memory is taken, or whose pass is lost, goes on as if nothing had happened."""

from __future__ import annotations

import random

import pytest

from support.engine_grid import Grid
from support.engine_scenarios import broken_off, in_small_pool, preempted


@pytest.mark.parametrize(
    ("every", "whole_batch", "prefix_caching"),
    [
        *((1, True, True), (1, False, False), (1, True, False)),
        *((2, True, False), (3, False, True), (3, True, True), (5, True, False)),
    ],
)
def test_preempted_again_and_again(
    tiny: Grid, every: int, whole_batch: bool, prefix_caching: bool
) -> None:
    preempted(tiny, every, whole_batch=whole_batch, prefix_caching=prefix_caching)


@pytest.mark.parametrize("every", [1, 2, 3, 5])
def test_preempted_and_found_again(grid: Grid, every: int) -> None:
    """What was computed stands in the prefix cache, unless it was only part of a block."""
    run = preempted(grid, every, whole_batch=True)
    read = sum((r.num_preemptions + 1) * r.num_prompt_tokens for _, r in run.submitted)
    assert run.runner.num_rows < read


@pytest.mark.parametrize(("every", "rows"), [(2, 16), (3, 24), (7, 9)])
def test_preempted_in_the_middle_of_prompts(tiny: Grid, every: int, rows: int) -> None:
    run = preempted(tiny, every, whole_batch=False, max_num_batched_tokens=rows)
    assert 0 in run.preempted_after
    assert max(run.preempted_after) > 3


@pytest.mark.parametrize("max_preemptions", [0, 3, 1000])
@pytest.mark.parametrize("prefix_caching", [True, False])
def test_memory_that_is_too_small_for_all(
    tiny: Grid, prefix_caching: bool, max_preemptions: int
) -> None:
    """All end, with the bits they get alone, and preemptions are bounded."""
    rng = random.Random(6)
    specs = [*tiny.subjects, *(tiny.neighbour(rng) for _ in range(12))]
    for seed in range(12):
        prompt = tiny.prompt(seed, rng.randint(1, 20))
        specs.append(tiny.spec(prompt, 40, temperature=rng.choice((0, 1)), seed=seed))
    rng.shuffle(specs)
    run = in_small_pool(
        tiny,
        specs,
        spare=3,
        prefix_caching=prefix_caching,
        max_preemptions=max_preemptions,
        max_num_batched_tokens=64,
    )
    counts = [request.num_preemptions for _, request in run.submitted]
    assert (sum(counts) > 0) == (max_preemptions > 0)
    assert max(counts) <= max_preemptions


@pytest.mark.parametrize("over", [True, False])
@pytest.mark.parametrize("passes", [{0}, {3}, {0, 1, 2, 5, 6, 11}])
def test_passes_that_are_broken_off(tiny: Grid, passes: set[int], over: bool) -> None:
    """``over``: all is computed and stored, and nobody hears of it."""
    broken_off(tiny, passes, over=over)
    broken_off(tiny, passes, over=over, prefix_caching=False, max_num_batched_tokens=50)
