"""Static batching: together from the beginning to the end of the longest."""

from __future__ import annotations

from farthing.engine.schedule import Schedule
from support.schedules import advance, make_request, make_scheduler, play


def widths(steps: list[Schedule]) -> list[int]:
    return [sum(rows.num_tokens for rows in step.rows) for step in steps]


def test_a_static_batch_reads_all_prompts_then_decodes_to_its_longest() -> None:
    scheduler = make_scheduler(max_num_seqs=3, batching="static")
    lengths = {"a": 2, "b": 6, "c": 4, "d": 3}
    requests = [make_request(name, 20, max_tokens=n) for name, n in lengths.items()]
    for request in requests:
        scheduler.add(request)
    first, second = [], []
    while requests[3].num_computed_tokens == 0:
        first.append(advance(scheduler))
    second = play(scheduler)
    drawn = [sum(rows.samples for rows in step.rows) for step in first]
    # 60 tokens of prompts in two passes of 32, then five more tokens of the longest, and d's first.
    assert drawn == [1, 2, 3, 3, 3, 3, 3, 1]
    assert widths(first)[2:7] == [3] * 5
    assert len(second) == 2
    assert all(request.finish_reason == "length" for request in requests)


def test_ended_requests_are_computed_on_and_nobody_takes_their_tokens() -> None:
    scheduler = make_scheduler(max_num_seqs=2, batching="static")
    short, long = make_request("a", 5, max_tokens=2), make_request("bb", 5, max_tokens=9)
    next_one = make_request("ccc", 5, max_tokens=1)
    for request in (short, long, next_one):
        scheduler.add(request)
    advance(scheduler)
    advance(scheduler)
    assert short.finish_reason == "length"
    output = list(short.output_token_ids)
    while not long.finished:
        assert next_one.num_computed_tokens == 0
        assert not short.finished, "it cannot return before the others"
        step = advance(scheduler)
        rows = {r.request: r for r in step.rows}
        assert (rows[short].num_tokens, rows[short].discarded) == (1, True)
        assert not rows[long].discarded
    assert short.finished
    assert short.output_token_ids == output
    assert scheduler.holders() == [], "the batch has ended, its memory is back"
    play(scheduler)
    assert next_one.finish_reason == "length"


def test_an_aborted_request_leaves_a_static_batch_at_once() -> None:
    scheduler = make_scheduler(max_num_seqs=2, batching="static")
    gone, other = make_request("a", 5, max_tokens=9), make_request("bb", 5, max_tokens=9)
    for request in (gone, other):
        scheduler.add(request)
    advance(scheduler)
    scheduler.finish(gone, "abort")
    scheduler.check_integrity()
    assert [rows.request for rows in advance(scheduler).rows] == [other]


def test_a_static_batch_that_is_broken_off_begins_again_and_holds_nobody() -> None:
    scheduler = make_scheduler(max_num_seqs=2, batching="static")
    short, long = make_request("a", 5, max_tokens=1), make_request("bb", 5, max_tokens=9)
    for request in (short, long):
        scheduler.add(request)
    advance(scheduler)
    scheduler.roll_back(scheduler.schedule(0.0))
    scheduler.check_integrity()
    assert short.finished
    assert scheduler.holders() == []
    play(scheduler)
    assert long.finish_reason == "length"


def test_a_static_batch_is_collected_until_it_is_full_or_nobody_comes() -> None:
    scheduler = make_scheduler(max_num_seqs=3, batching="static", collect_seconds=2.0)
    requests = [make_request("r" * i, 5, max_tokens=1) for i in range(1, 6)]
    for request, now in zip(requests[:3], (10.0, 11.0, 12.5), strict=True):
        assert not advance(scheduler, now)
        scheduler.add(request, now)
    assert len(advance(scheduler, 12.5).rows) == 3, "it is full"
    scheduler.add(requests[3], 20.0)
    assert not advance(scheduler, 21.9)
    scheduler.add(requests[4], 21.9)
    assert not advance(scheduler, 23.8)
    assert len(advance(scheduler, 23.9).rows) == 2, "nobody has come for two seconds"


def test_continuous_batching_takes_the_same_trace_in_fewer_steps() -> None:
    lengths = [2, 3, 40, 2, 3, 2, 35, 4, 2, 3, 2, 30]

    def steps(batching: str) -> int:
        scheduler = make_scheduler(max_num_seqs=4, batching=batching)
        for i, n in enumerate(lengths):
            scheduler.add(make_request("r" * (i + 1), 4, max_tokens=n))
        return len(play(scheduler))

    assert steps("static") == 40 + 35 + 30
    assert steps("continuous") <= 50
