"""Who runs, how many tokens of it, with which memory, and what comes back."""

from __future__ import annotations

import pytest

from farthing.engine.kv_manager import KvUsage
from farthing.engine.paged_kv import PagedKv
from farthing.engine.prefill import MAX_PROMPT_LOGITS
from farthing.engine.request import Request
from farthing.engine.schedule import Schedule
from farthing.engine.scheduler import Scheduler
from support.schedules import EOS, advance, make_request, make_scheduler, play, usage, with_choices


def spans(steps: list[Schedule], request: Request) -> list[tuple[int, int, bool]]:
    return [
        (rows.start, rows.num_tokens, rows.samples)
        for step in steps
        for rows in step.rows
        if rows.request is request
    ]


def test_a_prompt_is_cut_to_the_budget_and_then_decodes_one_by_one() -> None:
    scheduler = make_scheduler()
    request = make_request("a", 70, max_tokens=3)
    scheduler.add(request)
    assert spans(play(scheduler), request) == [
        (0, 32, False),
        (32, 32, False),
        (64, 6, True),
        (70, 1, True),
        (71, 1, True),
    ]


@pytest.mark.parametrize("prefix_caching", [True, False])
def test_every_position_is_computed_exactly_once_with_the_cache(prefix_caching: bool) -> None:
    scheduler = make_scheduler(
        max_num_batched_tokens=20, max_num_seqs=3, prefix_caching=prefix_caching
    )
    requests = [make_request("x" * i, 5 + 9 * i, max_tokens=6) for i in range(1, 6)]
    for request in requests:
        scheduler.add(request)
    steps = play(scheduler)
    for request in requests:
        computed = [
            position
            for start, count, _ in spans(steps, request)
            for position in range(start, start + count)
        ]
        assert computed == list(range(request.num_tokens - 1))
        assert len(request.output_token_ids) == 6
        assert request.finish_reason == "length"
    assert usage(scheduler).held_blocks == 0


def test_a_running_stream_gets_a_token_in_every_step_beside_a_long_prompt() -> None:
    scheduler = make_scheduler(max_num_batched_tokens=64, max_prefill_chunk=16)
    first, long = make_request("first", 4, max_tokens=12), make_request("long", 150, max_tokens=2)
    scheduler.add(first)
    advance(scheduler)
    scheduler.add(long)
    beside = []
    while not first.finished:
        step = advance(scheduler)
        assert any(rows.request is first and rows.samples for rows in step.rows)
        beside += [rows.num_tokens for rows in step.rows if rows.request is long]
    assert beside == [16] * 9 + [6, 1]
    alone = make_request("alone", 100, max_tokens=1)
    scheduler.add(alone)
    (rows,) = advance(scheduler).rows
    assert rows.num_tokens == 64, "nobody waits beside it"


def test_a_short_prompt_passes_long_ones_and_the_oldest_gets_on() -> None:
    scheduler = make_scheduler(blocks=400)
    long = [make_request("l" * i, 1000, max_tokens=2) for i in (1, 2, 3)]
    for request in long:
        scheduler.add(request)
    advance(scheduler)
    short = make_request("short", 40, max_tokens=1)
    scheduler.add(short)
    steps = [advance(scheduler) for _ in range(3)]
    assert short.finished, "40 tokens, 16 of a step"
    for step in steps[:2]:
        assert {rows.request: rows.num_tokens for rows in step.rows} == {long[0]: 16, short: 16}
    assert {rows.request: rows.num_tokens for rows in steps[2].rows} == {long[0]: 24, short: 8}


def test_without_the_cache_each_step_begins_at_the_first_token() -> None:
    scheduler = make_scheduler(max_num_batched_tokens=8, use_cache=False, prefix_caching=False)
    request = make_request("a", 6, max_tokens=4)
    scheduler.add(request)
    assert spans(play(scheduler), request) == [
        (0, 6, True),
        (0, 7, True),
        (0, 8, True),
        (0, 8, False),
        (8, 1, True),
    ]


def test_blocks_are_taken_as_tokens_come() -> None:
    scheduler = make_scheduler(blocks=8)
    request = make_request("a", 30, max_tokens=40)
    scheduler.add(request)
    held = []
    while scheduler.has_work:
        advance(scheduler)
        held.append(len(request.block_table))
    assert held[:4] == [2, 2, 2, 3], "the token of the first step is stored in the second"
    assert max(held) == 5 == scheduler.kv.blocks_needed(request)


def test_the_last_token_sampled_needs_no_room() -> None:
    kv = make_scheduler().kv
    assert kv.blocks_needed(make_request("a", 16, max_tokens=1)) == 1
    assert kv.blocks_needed(make_request("a", 16, max_tokens=2)) == 2


def test_whoever_does_not_fit_yet_waits_and_nobody_passes() -> None:
    scheduler = make_scheduler(blocks=4)
    first, second, third = (
        make_request(n, p, max_tokens=2) for n, p in (("a", 40), ("b", 40), ("c", 3))
    )
    for request in (first, second, third):
        scheduler.add(request)
    advance(scheduler, now=1.0)
    assert scheduler.running == [first]
    assert scheduler.num_waiting == 2
    scheduler.finish(first, "abort")
    assert usage(scheduler).held_blocks == 0
    advance(scheduler, now=2.0)
    assert scheduler.running == [second]
    assert second.admitted_at == 2.0
    play(scheduler)
    assert third.finish_reason == "length"


def test_the_newest_gives_way_and_goes_on_where_it_was() -> None:
    def outputs(blocks: int) -> tuple[list[list[int]], Scheduler, list[Request]]:
        scheduler = make_scheduler(blocks)
        requests = [make_request(name, 30, max_tokens=60) for name in ("a", "bb", "ccc")]
        for request in requests:
            scheduler.add(request)
        play(scheduler)
        return [request.output_token_ids for request in requests], scheduler, requests

    ample, _, _ = outputs(64)
    tight, scheduler, requests = outputs(9)
    assert tight == ample
    assert requests[0].num_preemptions == 0, "the oldest is never a victim"
    assert scheduler.num_preemptions == sum(r.num_preemptions for r in requests) > 0
    assert all(r.num_preemptions <= scheduler.config.max_preemptions for r in requests)


@pytest.mark.parametrize("most", [0, 1, 3])
def test_preemptions_are_bounded_and_all_finish_in_a_pool_for_one(most: int) -> None:
    scheduler = make_scheduler(blocks=6, max_preemptions=most, max_num_seqs=6)
    requests = [make_request("r" * i, 5 + 7 * i % 40, max_tokens=50) for i in range(1, 9)]
    for request in requests:
        scheduler.add(request)
    play(scheduler)
    assert all(r.finish_reason == "length" for r in requests)
    assert max(r.num_preemptions for r in requests) <= most


def test_a_lower_priority_gives_way_first_and_begins_last() -> None:
    scheduler = make_scheduler(blocks=8)
    old_low = make_request("a", 30, max_tokens=60, priority=5)
    scheduler.add(old_low)
    advance(scheduler)
    urgent = make_request("bb", 30, max_tokens=60, priority=-1)
    usual = make_request("ccc", 2, max_tokens=3)
    for request in (usual, urgent):
        scheduler.add(request)
    advance(scheduler)
    assert scheduler.running == [urgent, usual, old_low]
    play(scheduler)
    assert urgent.num_preemptions == usual.num_preemptions == 0 < old_low.num_preemptions


def test_an_end_of_sequence_token_ends_with_stop_and_says_which() -> None:
    scheduler = make_scheduler()
    request = make_request("a", 3)
    scheduler.add(request)
    play(scheduler, token=lambda _: EOS)
    assert request.finish_reason == "stop"
    assert request.stop_reason == EOS
    assert request.output_token_ids == [EOS]


@pytest.mark.parametrize("steps", [0, 1, 2, 4])
@pytest.mark.parametrize("choice", [0, 1])
def test_abort_in_any_state_returns_the_blocks_and_twice_is_once(steps: int, choice: int) -> None:
    scheduler = make_scheduler(max_num_batched_tokens=16)
    choices = with_choices(make_request("a", 20), 2)
    other = make_request("b", 20)
    scheduler.add(choices[0])
    scheduler.add(other)
    for _ in range(steps):
        advance(scheduler)
    scheduler.finish(choices[choice], "abort")
    scheduler.finish(choices[choice], "abort")
    assert choices[choice].finish_reason == "abort"
    scheduler.check_integrity()
    play(scheduler)
    assert other.finish_reason == choices[1 - choice].finish_reason == "length"
    assert usage(scheduler).held_blocks == 0


def test_a_step_that_was_broken_off_is_computed_again() -> None:
    scheduler = make_scheduler()
    requests = [make_request("a", 20), make_request("bb", 50)]
    for request in requests:
        scheduler.add(request)
    advance(scheduler)
    before = [list(r.output_token_ids) for r in requests]
    scheduler.roll_back(scheduler.schedule(0.0))
    scheduler.check_integrity()
    assert scheduler.holders() == []
    play(scheduler)
    for request, tokens in zip(requests, before, strict=True):
        assert request.output_token_ids[: len(tokens)] == tokens
        assert len(request.output_token_ids) == 4


@pytest.mark.parametrize("use_cache", [True, False])
def test_logits_of_prompt_rows_are_asked_for_once_and_in_portions(use_cache: bool) -> None:
    scheduler = make_scheduler(
        max_num_batched_tokens=200, use_cache=use_cache, prefix_caching=False
    )
    asking = [make_request(name, 150, prompt_logprobs=1) for name in "ab"]
    for request in (*asking, make_request("c", 150)):
        scheduler.add(request)
    positions: dict[str, list[int]] = {"a": [], "b": [], "c": []}
    while scheduler.has_work:
        step = scheduler.schedule(0.0)
        assert step
        assert sum(rows.prompt_logits for rows in step.rows) <= MAX_PROMPT_LOGITS
        for rows in step.rows:
            end = rows.start + rows.num_tokens - rows.samples
            positions[rows.request.request_id] += range(end - rows.prompt_logits, end)
            assert rows.num_logits == rows.prompt_logits + rows.samples <= rows.num_tokens
            scheduler.update(rows, 1 if rows.samples else None)
            rows.request.num_prompt_logprobs += rows.prompt_logits
    assert positions == {"a": list(range(149)), "b": list(range(149)), "c": []}


def test_contiguous_slots_are_reserved_whole_and_their_waste_is_known() -> None:
    scheduler = make_scheduler(blocks=64, contiguous=200)  # 13 blocks a slot, four of them
    requests = [make_request("r" * i, 10, max_tokens=5) for i in range(1, 7)]
    for request in requests:
        scheduler.add(request)
    advance(scheduler)
    assert len(scheduler.running) == 4
    for request in scheduler.running:
        first = request.block_table[0]
        assert request.block_table == list(range(first, first + 13))
    now = usage(scheduler)
    assert (now.held_blocks, now.reserved_tokens, now.stored_tokens) == (52, 832, 32)
    play(scheduler)
    assert all(r.finish_reason == "length" for r in requests)
    assert usage(scheduler) == KvUsage(64, 0, 0, 0, 0)


def test_paging_wastes_less_than_a_block_a_sequence() -> None:
    scheduler = make_scheduler(prefix_caching=False, max_num_batched_tokens=64)
    for i in range(1, 9):
        scheduler.add(make_request("r" * i, 3 + 5 * i, max_tokens=30))
    while scheduler.has_work:
        advance(scheduler)
        for request in scheduler.running:
            if request.num_computed_tokens >= request.num_prompt_tokens:
                assert 16 * len(request.block_table) - request.num_computed_tokens < 16


def test_a_request_that_was_never_queued_can_be_ended() -> None:
    scheduler = make_scheduler()
    request = make_request("a", 5)
    scheduler.finish(request, "abort")
    assert request.finish_reason == "abort"
    assert not scheduler.has_work


def test_a_refused_prompt_is_not_looked_up_again_before_there_is_more_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scheduler = make_scheduler(blocks=8, max_num_batched_tokens=128)
    running, other = make_request("a", 60, max_tokens=30), make_request("zz", 3, max_tokens=9)
    waiting = make_request("bb", 100, max_tokens=2)
    for request in (running, other, waiting):
        scheduler.add(request)
    looked_up = []
    find = PagedKv._find

    def counted(self: PagedKv, request: Request) -> object:
        looked_up.append(request)
        return find(self, request)

    monkeypatch.setattr(PagedKv, "_find", counted)
    while not other.finished:
        advance(scheduler)
    assert looked_up.count(waiting) == 1
    play(scheduler)
    assert looked_up.count(waiting) == 3, "when one had ended, and when both had"
    assert waiting.finish_reason == "length"
