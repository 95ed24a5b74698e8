"""What every schedule must keep to, whatever the requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping

from farthing.engine.block_pool import BLOCK_TOKENS
from farthing.engine.fair_share import INPUT_WEIGHT
from farthing.engine.prefill import MAX_PROMPT_LOGITS
from farthing.engine.request import Request
from farthing.engine.schedule import Schedule, ScheduledRows
from farthing.engine.scheduler import Scheduler


def check_rows(scheduler: Scheduler, schedule: Schedule) -> None:
    """Asserts that each of the rows is the next of a running request, and bounds are kept."""
    config = scheduler.config
    rows = schedule.rows
    assert rows, "a pass without rows"
    assert sum(r.num_tokens for r in rows) <= config.max_num_batched_tokens, "budget exceeded"
    assert len(rows) <= config.max_num_seqs, "more sequences than there may be"
    assert sum(r.prompt_logits for r in rows) <= MAX_PROMPT_LOGITS, "too many rows of logits"
    ids = {r.request.request_id for r in rows}
    assert len(ids) == len(rows), "a request is scheduled twice"
    running = {request.request_id for request in scheduler.running}
    ended = {request.request_id for request in scheduler.batching.ended}
    for r in rows:
        request = r.request
        assert r.num_tokens >= 1, f"request {request.request_id}: {r.num_tokens} rows"
        if r.discarded:
            assert request.request_id in ended
            assert r.start >= 0, f"request {request.request_id}: rows from {r.start}"
            continue
        end = r.start + r.num_tokens
        assert request.request_id in running, f"request {request.request_id} does not run"
        assert r.start == request.num_computed_tokens
        assert end <= request.num_tokens
        assert r.samples == (end == request.num_tokens)
        assert r.num_logits <= r.num_tokens


def check_progress(
    scheduler: Scheduler, schedule: Schedule, before: Mapping[str, Standing]
) -> None:
    """Asserts that streams get their tokens and the oldest prompt its share of the rows.

    ``before``: where the running requests stood before the step.
    """
    config = scheduler.config
    of = {r.request.request_id: r for r in schedule.rows}
    decoding = [request for request in scheduler.running if _is_stream(request, before)]
    streams = [*decoding, *scheduler.batching.ended]
    reading = [request for request in scheduler.running if request not in decoding]
    if config.batching == "static" and reading:
        streams = []
    assert all(request.request_id in of for request in streams), "a stream gets no token"
    if not reading:
        return
    budget = config.max_num_batched_tokens - len(streams)
    if streams and config.max_prefill_chunk is not None:
        budget = min(budget, config.max_prefill_chunk)
    of_prompts = sum(r.num_tokens for r in schedule.rows) - len(streams)
    assert of_prompts <= budget, f"{of_prompts} rows of prompts in a pass that has {budget}"
    oldest = reading[0]
    if oldest.request_id in of:
        least = min(oldest.num_remaining_tokens, (budget + 1) // 2, OLDEST_PROMPT_LOGITS)
        assert of[oldest.request_id].num_tokens >= least, "the oldest prompt gets too little"
        return
    kv = scheduler.kv
    computing = {digest for r in schedule.rows for digest in kv.digests(r.request, r.num_tokens)}
    assert kv.will_find(oldest, computing), "the oldest prompt does not get on"


OLDEST_PROMPT_LOGITS = MAX_PROMPT_LOGITS // 2
"""Rows of logits that the oldest prompt may have for its own in every step."""

Standing = tuple[int, int]
"""Tokens that remained to be computed, and preemptions."""


def standing(request: Request) -> Standing:
    """Where ``request`` stands."""
    return request.num_remaining_tokens, request.num_preemptions


def _is_stream(request: Request, before: Mapping[str, Standing]) -> bool:
    """Whether one token remained when the step chose its streams.

    Tokens that others computed are taken later; not by those who were admitted in this step.
    """
    remaining, preemptions = before.get(request.request_id, (1, -1))
    if preemptions != request.num_preemptions:  # it began in this step
        remaining = 1
    return request.num_remaining_tokens == 1 == remaining


def check_admission(
    scheduler: Scheduler, began: Collection[Request], waiting: Collection[Request]
) -> None:
    """Asserts that those who began in this step are those who came first, one after the other.

    ``waiting``: everyone else who could have begun. Plain search over all, where the queue has
    heaps; a user is charged for a prompt when it first begins.
    """
    fair = scheduler.config.fair_share
    service = {r.user: scheduler.counters.service(r.user) for r in (*began, *waiting)}
    for request in began:
        service[request.user] -= _charged_at_start(request)

    def place(request: Request) -> tuple[int, bool, int, int]:
        ahead = request.num_preemptions > 0 or request.leader is not None
        served = service[request.user] if fair and not ahead else 0
        return request.priority, not ahead, served, request.arrival

    left = {*began, *waiting}
    for _ in began:
        first = min(left, key=place)
        assert first in began, (
            f"request {first.request_id} at {place(first)} still waits, and others began: "
            f"{[(r.request_id, place(r)) for r in began]}"
        )
        left.discard(first)
        service[first.user] += _charged_at_start(first)


def _charged_at_start(request: Request) -> int:
    """Of a request that began in this step."""
    if request.num_preemptions:
        return 0
    return INPUT_WEIGHT * (request.num_prompt_tokens - request.num_cached_tokens)


def check_writes(
    rows: ScheduledRows, named: Counter[int], is_kept: Callable[[int], bool], claimed: set[int]
) -> None:
    """Asserts that nobody else names, keeps or writes the blocks that ``rows`` are stored in."""
    request = rows.request
    first = rows.start // BLOCK_TOKENS
    last = (rows.start + rows.num_tokens - 1) // BLOCK_TOKENS
    for block in request.block_table[first : last + 1]:
        name = f"request {request.request_id} writes block {block}"
        assert named[block] == 1, f"{name}, which {named[block]} tables name"
        assert not is_kept(block), f"{name}, which the prefix cache keeps"
        assert block not in claimed, f"{name}, which another row writes"
        claimed.add(block)
    assert len(request.block_table) > last, f"request {request.request_id}: its table is too short"
