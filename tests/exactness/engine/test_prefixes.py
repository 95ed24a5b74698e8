"""Blocks that others have filled give the bits of computing them again."""

from __future__ import annotations

import random

import pytest

from farthing.engine.block_pool import BLOCK_TOKENS
from farthing.engine.prefix_cache import PrefixCache
from support.engine_grid import EngineRun, Grid
from support.engine_scenarios import one_after_another, one_after_the_other, together

SAMPLED = {"temperature": 0.9, "seed": 11, "logprobs": 2}


def prefix_cache(run: EngineRun) -> PrefixCache:
    assert run.engine.prefix_cache is not None
    return run.engine.prefix_cache


def full_tokens(stored: int) -> int:
    return stored // BLOCK_TOKENS * BLOCK_TOKENS


def test_warm_gives_what_cold_gave(grid: Grid) -> None:
    run = one_after_another(grid)
    found = []
    for _ in range(2):
        for spec in grid.subjects:
            found.append(run.submit(spec)[0])
            run.finish()
    grid.check(run)
    # All but the last token, as far as its blocks were filled; of a prompt whose log probabilities
    # are asked for every row is computed.
    expected = [
        0
        if r.params.prompt_logprobs is not None
        else min(r.num_prompt_tokens - 1, full_tokens(r.num_tokens - 1))
        for r in found
    ]
    assert [r.num_cached_tokens for r in found] == expected
    assert sum(expected) > 100


def test_warm_all_at_once(tiny: Grid) -> None:
    run = together(tiny)
    for spec in tiny.subjects:
        run.submit(spec)
    tiny.finish_and_check(run)
    assert run.runner.num_copies > 2


@pytest.mark.parametrize("rows", [512, 3])
@pytest.mark.parametrize("length", [1, 15, 16, 17, 31, 32, 33, 48])
def test_a_shared_beginning(tiny: Grid, length: int, rows: int) -> None:
    beginning = tiny.prompt(length, length)
    first = tiny.spec(beginning + tiny.prompt(100, 9))
    for tail in (1, 20):
        other = tiny.spec(beginning + tiny.prompt(200 + tail, tail), **SAMPLED)
        found = one_after_the_other(tiny, first, other, max_num_batched_tokens=rows, max_num_seqs=3)
        assert found.num_cached_tokens == length


@pytest.mark.parametrize("length", [16, 32, 64])
def test_a_prompt_that_is_cached_whole(grid: Grid, length: int) -> None:
    """Its last token is computed again, in a copy of the last block."""
    prompt = grid.prompt(length, length)
    run = grid.run()
    run.submit(grid.spec(prompt))
    run.finish()
    for _ in range(2):
        request, *_ = run.submit(grid.spec(prompt, **SAMPLED))
        beside, *_ = run.submit(grid.spec(prompt, temperature=1.3, seed=5))
        run.finish()
        assert [request.num_cached_tokens, beside.num_cached_tokens] == [length - 1] * 2
    assert run.runner.num_copies == 4
    grid.check(run)


@pytest.mark.parametrize("length", [5, 16, 40])
def test_an_answer_is_the_beginning_of_the_next_prompt(tiny: Grid, length: int) -> None:
    """A conversation: blocks that were filled by decoding are found as a prompt."""
    run = tiny.run()
    prompt = tiny.prompt(length, length)
    for turn in range(4):
        spec = tiny.spec(prompt, temperature=0.9, seed=turn)
        (request,) = run.submit(spec)
        run.finish()
        stored = len(prompt) + tiny.max_tokens - 1
        prompt = (*prompt, *request.output_token_ids, *tiny.prompt(turn, 3))
        (again,) = run.submit(tiny.spec(prompt, 2))
        run.finish()
        assert again.num_cached_tokens == full_tokens(stored)
    tiny.check(run)


@pytest.mark.parametrize("rows", [512, 16, 6])
def test_equal_prompts_side_by_side_are_read_once(tiny: Grid, rows: int) -> None:
    prompt = tiny.prompt(1, 53)
    specs = [tiny.spec(prompt), tiny.spec(prompt, **SAMPLED), tiny.spec(prompt[:40], seed=3)]
    run = tiny.run(max_num_batched_tokens=rows, max_num_seqs=6)
    requests = [run.submit(spec)[0] for spec in specs]
    while not all(request.output_token_ids for request in requests):
        run.step()
    tables = [request.block_table for request in requests]
    assert tables[0][:3] == tables[1][:3]
    assert tables[0][:2] == tables[2][:2]
    found = sorted(request.num_cached_tokens for request in requests)
    # In small pieces the shortest is read beside the oldest, and they become one block by block.
    assert found == ([0, 32, 48] if rows == 512 else [0, 0, 48])
    tiny.finish_and_check(run)


def test_blocks_filled_at_the_same_time_become_one(grid: Grid) -> None:
    """Two streams write the same tokens; who publishes second takes the block that is there."""
    run = grid.run()
    count = 3 * BLOCK_TOKENS
    spec = grid.spec(grid.prompt(2, 10), count, logprobs=1)
    requests = [run.submit(spec)[0] for _ in range(2)]
    swapped = []
    while run.engine.has_work:
        before = [[*request.block_table] for request in requests]
        run.step()
        for request, table in zip(requests, before, strict=True):
            now = request.block_table
            swapped += [i for i, (a, b) in enumerate(zip(table, now, strict=False)) if a != b]
    assert swapped == [0, 1, 2], "each full block, when the second stream had filled it too"
    grid.check(run)


@pytest.mark.parametrize("others", [1, 2, 3, 6])
def test_evicted_by_others_and_computed_again(tiny: Grid, others: int) -> None:
    """The more blocks others take, the less of a prompt is found; its end goes first."""
    run = tiny.run(num_blocks=14)
    spec = tiny.spec(tiny.prompt(3, 100), 2, **SAMPLED)
    run.submit(spec)
    run.finish()
    assert run.evictable == 6
    for i in range(others):
        run.submit(tiny.spec(tiny.prompt(50 + i, 60), 2))
        run.finish()
    (again,) = run.submit(spec)
    tiny.finish_and_check(run)
    assert again.num_cached_tokens == {1: 96, 2: 96, 3: 64, 6: 0}[others]


def test_evicted_while_others_run(grid: Grid) -> None:
    run = grid.run(num_blocks=16)
    rng = random.Random(4)
    beginnings = [grid.prompt(i, 33) for i in range(3)]
    for _ in range(14):
        run.submit(grid.continued(rng, rng.choice(beginnings)))
        for _ in range(4):
            run.step()
    grid.finish_and_check(run)
    assert sum(request.num_cached_tokens for _, request in run.submitted) > 0


def test_without_the_prefix_cache(tiny: Grid) -> None:
    run = together(tiny, prefix_caching=False)
    for spec in tiny.subjects:
        run.submit(spec)
    tiny.finish_and_check(run)
    assert all(request.num_cached_tokens == 0 for _, request in run.submitted)


def test_digests_that_collide(tiny: Grid, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tiny.run()
    monkeypatch.setattr(prefix_cache(run), "_digest", lambda before, tokens: b"the same")
    for spec in [*tiny.subjects, *tiny.subjects]:
        run.submit(spec)
        run.step()
    tiny.finish_and_check(run)
    assert len(prefix_cache(run)) <= 1
