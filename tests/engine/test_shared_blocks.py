"""What requests have in common is computed once: prefixes, and choices of one prompt."""

from __future__ import annotations

import pytest

from farthing.engine.paged_kv import PagedKv
from support.schedules import advance, make_request, make_scheduler, play, usage, with_choices


def test_equal_prefixes_are_computed_once_even_side_by_side() -> None:
    scheduler = make_scheduler(blocks=200, max_num_batched_tokens=64)
    prefix = tuple(range(100, 300))  # twelve whole blocks and a half
    requests = [make_request(f"r{i}", (*prefix, 900 + i), max_tokens=2) for i in range(8)]
    for request in requests:
        scheduler.add(request)
    steps = play(scheduler)
    rows = sum(rows.num_tokens for step in steps for rows in step.rows)
    own = 201 - 192  # the tail of each, for all were admitted before the first was read
    assert rows == 192 + 8 * own + 8, "each prompt's tail, and one decode row each"
    assert sorted(r.num_cached_tokens for r in requests) == [0] + [192] * 7
    late = make_request("late", (*prefix, 900, 1, 2), max_tokens=1)
    scheduler.add(late)
    (row,) = advance(scheduler).rows
    assert (row.start, row.num_tokens) == (192, 11), "the last block of none was full"


@pytest.mark.parametrize("alike", [1, 15, 16, 17, 30, 31])
def test_a_prompt_goes_on_where_a_cached_one_differs(alike: int) -> None:
    scheduler = make_scheduler()
    scheduler.add(make_request("a", tuple(range(100, 148)), max_tokens=1))
    play(scheduler)
    second = make_request("b", (*range(100, 100 + alike), *range(500, 520)), max_tokens=1)
    scheduler.add(second)
    step = scheduler.schedule(0.0)
    ((start, count),) = [(rows.start, rows.num_tokens) for rows in step.rows]
    assert (start, start + count) == (alike, alike + 20)
    assert len(step.copies) == (alike % 16 != 0)
    assert second.num_cached_tokens == alike


def test_a_prompt_that_is_cached_whole_computes_its_last_token_in_a_block_of_its_own() -> None:
    scheduler = make_scheduler()
    prompt = tuple(range(100, 132))
    first = make_request("a", prompt, max_tokens=1)
    scheduler.add(first)
    play(scheduler)
    kv = scheduler.kv
    assert isinstance(kv, PagedKv)
    second = make_request("b", prompt, max_tokens=1)
    scheduler.add(second)
    step = scheduler.schedule(0.0)
    ((source, target),) = step.copies
    assert kv.pool.is_kept(source)
    assert not kv.pool.is_kept(target)
    assert second.block_table[1] == target
    assert [(r.start, r.num_tokens, r.samples) for r in step.rows] == [(31, 1, True)]
    assert second.num_cached_tokens == 31
    scheduler.update(step.rows[0], 1)
    scheduler.check_integrity()


def test_prompt_log_probabilities_are_computed_not_found() -> None:
    scheduler = make_scheduler(max_num_batched_tokens=100)
    prompt = tuple(range(100, 180))
    scheduler.add(make_request("a", prompt, max_tokens=1))
    play(scheduler)
    asking = make_request("b", prompt, max_tokens=1, prompt_logprobs=0)
    scheduler.add(asking)
    step = scheduler.schedule(0.0)
    assert step.rows[0].start == 0
    assert asking.num_cached_tokens == 0


@pytest.mark.parametrize("prefix_caching", [True, False])
@pytest.mark.parametrize("prompt", [1, 2, 15, 16, 17, 32, 33, 100])
def test_choices_share_the_prompts_blocks_and_copy_the_last(
    prompt: int, prefix_caching: bool
) -> None:
    scheduler = make_scheduler(prefix_caching=prefix_caching)
    choices = with_choices(make_request("a", prompt, max_tokens=20), 4)
    scheduler.add(choices[0])
    assert scheduler.num_waiting == 4
    while scheduler.num_deferred:
        assert not advance(scheduler).copies
    step = scheduler.schedule(0.0)
    whole = (prompt - 1) // 16
    first, *others = choices
    assert step.copies == [(first.block_table[whole], c.block_table[whole]) for c in others]
    assert len({c.block_table[whole] for c in choices}) == 4
    for choice in others:
        assert choice.block_table[:whole] == first.block_table[:whole]
        assert choice.num_cached_tokens == choice.num_computed_tokens == prompt - 1
    for rows in step.rows:
        scheduler.update(rows, 1)
    play(scheduler)
    assert all(len(c.output_token_ids) == 20 for c in choices)
    assert scheduler.num_waiting == 0


@pytest.mark.parametrize("when", ["queued", "reading", "read", "decoding"])
def test_choices_go_on_without_their_first(when: str) -> None:
    scheduler = make_scheduler(max_num_batched_tokens=16)
    choices = with_choices(make_request("a", 40, max_tokens=10), 3)
    scheduler.add(choices[0])
    for _ in range({"queued": 0, "reading": 1, "read": 3, "decoding": 5}[when]):
        advance(scheduler)
    scheduler.finish(choices[0], "abort")
    play(scheduler)
    assert [c.finish_reason for c in choices] == ["abort", "length", "length"]
    assert usage(scheduler).held_blocks == 0


def test_what_a_failed_request_computed_is_not_found() -> None:
    scheduler = make_scheduler()
    prompt = tuple(range(100, 150))
    bad = make_request("a", prompt)
    scheduler.add(bad)
    advance(scheduler)
    assert len(bad.chain) == 2
    scheduler.finish(bad, "error")
    scheduler.check_integrity()
    assert usage(scheduler).cached_blocks == 0
    good = make_request("b", prompt)
    scheduler.add(good)
    assert advance(scheduler).rows[0].start == 0
