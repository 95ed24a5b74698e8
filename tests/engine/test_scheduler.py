"""The scheduler over plain data: who runs, how many tokens, and what comes back."""

from __future__ import annotations

import pytest

from farthing.engine.block_pool import BlockPool
from farthing.engine.request import Request
from farthing.engine.scheduler import MAX_PROMPT_LOGITS, ScheduledRows, Scheduler, blocks_needed
from farthing.sampling.params import SamplingParams

EOS = 7


def make_request(
    name: str, prompt: int, max_tokens: int = 4, prompt_logprobs: int | None = None
) -> Request:
    return Request(
        request_id=name,
        prompt_token_ids=tuple(range(100, 100 + prompt)),
        params=SamplingParams(prompt_logprobs=prompt_logprobs),
        stop_token_ids=frozenset({EOS}),
        max_tokens=max_tokens,
        seed=0,
    )


def make_scheduler(
    blocks: int = 64, seqs: int = 8, budget: int = 32, use_cache: bool = True
) -> Scheduler:
    return Scheduler(
        BlockPool(blocks), max_num_seqs=seqs, max_num_batched_tokens=budget, use_cache=use_cache
    )


def play(scheduler: Scheduler, token: int = 1) -> list[list[ScheduledRows]]:
    """Runs to the end, every sampled token being ``token``; returns the steps."""
    steps = []
    while scheduler.has_work:
        step = scheduler.schedule(float(len(steps)))
        assert step, "work is left but nothing is scheduled"
        assert sum(rows.num_tokens for rows in step) <= scheduler.max_num_batched_tokens
        for rows in step:
            scheduler.update(rows, token if rows.samples else None)
        scheduler.pool.check_integrity()
        steps.append(step)
    return steps


def test_a_prompt_is_cut_to_the_budget_and_then_decodes_one_by_one() -> None:
    scheduler = make_scheduler(budget=32)
    scheduler.add(make_request("a", 70, max_tokens=3))
    steps = play(scheduler)
    assert [(s[0].start, s[0].num_tokens, s[0].samples) for s in steps] == [
        (0, 32, False),
        (32, 32, False),
        (64, 6, True),
        (70, 1, True),
        (71, 1, True),
    ]


def test_every_position_is_computed_exactly_once_with_the_cache() -> None:
    scheduler = make_scheduler(budget=20, seqs=3)
    requests = [make_request(str(i), 5 + 9 * i, max_tokens=6) for i in range(5)]
    for request in requests:
        scheduler.add(request)
    computed: dict[str, list[int]] = {r.request_id: [] for r in requests}
    for step in play(scheduler):
        for rows in step:
            computed[rows.request.request_id] += range(rows.start, rows.start + rows.num_tokens)
    for request in requests:
        assert computed[request.request_id] == list(range(request.num_tokens - 1))
        assert len(request.output_token_ids) == 6
        assert request.finish_reason == "length"
    assert scheduler.pool.num_free == scheduler.pool.num_blocks


def test_a_running_stream_gets_a_token_in_every_step_beside_a_long_prompt() -> None:
    scheduler = make_scheduler(budget=16)
    first = make_request("first", 4, max_tokens=12)
    scheduler.add(first)
    for rows in scheduler.schedule(0.0):
        scheduler.update(rows, 1)
    scheduler.add(make_request("long", 150, max_tokens=2))
    while not first.finished:
        step = scheduler.schedule(0.0)
        assert any(rows.request is first and rows.samples for rows in step)
        for rows in step:
            scheduler.update(rows, 1 if rows.samples else None)


def test_without_the_cache_each_step_begins_at_the_first_token() -> None:
    scheduler = make_scheduler(budget=8, use_cache=False)
    scheduler.add(make_request("a", 6, max_tokens=4))
    spans = [(s[0].start, s[0].num_tokens, s[0].samples) for s in play(scheduler)]
    assert spans == [(0, 6, True), (0, 7, True), (0, 8, True), (0, 8, False), (8, 1, True)]


def test_requests_wait_in_order_until_blocks_for_their_whole_life_are_free() -> None:
    scheduler = make_scheduler(blocks=4)
    first, second, third = (make_request(n, 30, max_tokens=19) for n in "abc")
    assert blocks_needed(first) == 3
    for request in (first, second, third):
        scheduler.add(request)
    scheduler.schedule(0.0)
    assert scheduler.running == [first]
    assert list(scheduler.waiting) == [second, third]
    scheduler.finish(first, "abort")
    assert scheduler.pool.num_free == 4
    scheduler.schedule(1.0)
    assert scheduler.running == [second]
    assert second.admitted_at == 1.0


def test_the_last_token_sampled_needs_no_room() -> None:
    assert blocks_needed(make_request("a", 16, max_tokens=1)) == 1
    assert blocks_needed(make_request("a", 16, max_tokens=2)) == 2


def test_an_end_of_sequence_token_ends_with_stop_and_says_which() -> None:
    scheduler = make_scheduler()
    request = make_request("a", 3)
    scheduler.add(request)
    play(scheduler, token=EOS)
    assert request.finish_reason == "stop"
    assert request.stop_reason == EOS
    assert request.output_token_ids == [EOS]


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_abort_in_any_state_returns_the_blocks_and_twice_is_once(steps: int) -> None:
    scheduler = make_scheduler(budget=16)
    request, other = make_request("a", 20), make_request("b", 20)
    scheduler.add(request)
    scheduler.add(other)
    for _ in range(steps):
        for rows in scheduler.schedule(0.0):
            scheduler.update(rows, 1 if rows.samples else None)
    scheduler.finish(request, "abort")
    scheduler.finish(request, "abort")
    assert request.finish_reason == "abort"
    scheduler.pool.check_integrity()
    play(scheduler)
    assert other.finish_reason == "length"
    assert scheduler.pool.num_free == scheduler.pool.num_blocks


@pytest.mark.parametrize("use_cache", [True, False])
def test_logits_of_prompt_rows_are_asked_for_once_and_in_portions(use_cache: bool) -> None:
    scheduler = make_scheduler(budget=200, use_cache=use_cache)
    asking = [make_request(name, 150, prompt_logprobs=1) for name in "ab"]
    for request in (*asking, make_request("c", 150)):
        scheduler.add(request)
    positions: dict[str, list[int]] = {"a": [], "b": [], "c": []}
    while scheduler.has_work:
        step = scheduler.schedule(0.0)
        assert step
        assert sum(rows.prompt_logits for rows in step) <= MAX_PROMPT_LOGITS
        for rows in step:
            end = rows.start + rows.num_tokens - rows.samples
            positions[rows.request.request_id] += range(end - rows.prompt_logits, end)
            assert rows.num_logits == rows.prompt_logits + rows.samples <= rows.num_tokens
            scheduler.update(rows, 1 if rows.samples else None)
            rows.request.num_prompt_logprobs += rows.prompt_logits
    assert positions == {"a": list(range(149)), "b": list(range(149)), "c": []}
