"""Faults to plant in the production code, each of which the simulation must find."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from farthing.engine import batching, prefill, scheduler, waiting_queue
from farthing.engine.block_pool import BLOCK_TOKENS, BlockPool, blocks_for
from farthing.engine.deadlines import Deadlines
from farthing.engine.engine import Engine
from farthing.engine.kv_manager import BlockCopy
from farthing.engine.paged_kv import PagedKv
from farthing.engine.prefix_cache import CachedBlock, PrefixCache
from farthing.engine.request import Request, RequestState
from farthing.engine.schedule import Schedule, ScheduledRows
from farthing.engine.scheduler import Scheduler

Patch = pytest.MonkeyPatch
Fault = Callable[[Patch], None]

FAULTS: list[tuple[Fault, dict[str, Any]]] = []


def fault(**scheduling: Any) -> Callable[[Fault], Fault]:
    """Notes a fault, and the configuration without which it would be met too seldom."""

    def note(plant: Fault) -> Fault:
        FAULTS.append((plant, scheduling))
        return plant

    return note


# Blocks.


@fault()
def copies_are_forgotten(patch: Patch) -> None:
    admit = PagedKv.admit

    def without_copies(*args: Any, **options: Any) -> list[BlockCopy] | None:
        return None if admit(*args, **options) is None else []

    patch.setattr(PagedKv, "admit", without_copies)


@fault()
def sharing_a_held_block_is_not_counted(patch: Patch) -> None:
    share = BlockPool.share

    def uncounted(self: BlockPool, block: int) -> None:
        if self.references(block) == 0:
            share(self, block)

    patch.setattr(BlockPool, "share", uncounted)


@fault()
def eviction_is_not_told(patch: Patch) -> None:
    patch.setattr(PrefixCache, "_evicted", lambda self, block: None)


@fault()
def tables_are_released_from_their_start(patch: Patch) -> None:
    release = BlockPool.release
    patch.setattr(BlockPool, "release", lambda self, table: release(self, table[::-1]))


@fault()
def an_ended_request_keeps_its_blocks(patch: Patch) -> None:
    release = PagedKv.release

    def leaking(self: PagedKv, request: Request) -> None:
        if request.num_remaining_tokens == 1 and len(request.block_table) == 2:
            request.block_table = []
        release(self, request)

    patch.setattr(PagedKv, "release", leaking)


@fault()
def extending_is_off_by_one(patch: Patch) -> None:
    def short(self: PagedKv, request: Request) -> bool:
        missing = blocks_for(request.num_tokens - 1) - len(request.block_table)
        if missing > self.pool.num_available:
            return False
        request.block_table += self.pool.allocate(max(missing, 0))
        return True

    patch.setattr(PagedKv, "extend", short)


@fault()
def the_last_block_of_a_prompt_is_shared_and_not_copied(patch: Patch) -> None:
    admit = PagedKv.admit

    def sharing(
        self: PagedKv, request: Request, *, spare: int, reserve: bool
    ) -> list[BlockCopy] | None:
        copies = admit(self, request, spare=spare, reserve=reserve)
        for source, target in copies or ():
            if self.pool.references(source) == 0:
                return copies
            self.pool.share(source)
            self.pool.release([target])
            request.block_table[request.block_table.index(target)] = source
            copies = []
        return copies

    patch.setattr(PagedKv, "admit", sharing)


# The prefix cache.


@fault()
def one_block_too_many_is_published(patch: Patch) -> None:
    publish = PagedKv.publish

    def early(self: PagedKv, request: Request) -> None:
        computed = request.num_computed_tokens
        if computed + BLOCK_TOKENS <= request.num_tokens:
            request.num_computed_tokens += BLOCK_TOKENS
        publish(self, request)
        request.num_computed_tokens = computed

    patch.setattr(PagedKv, "publish", early)


@fault()
def only_digests_are_compared(patch: Patch) -> None:
    patch.setattr(CachedBlock, "follows", lambda self, parent, salt, tokens: True)


@fault()
def salts_are_ignored(patch: Patch) -> None:
    def follows(
        self: CachedBlock, parent: CachedBlock | None, salt: bytes, tokens: Sequence[int]
    ) -> bool:
        return self.parent is parent and self.tokens == tokens

    next_digest = PrefixCache.next_digest

    def unsalted(self: PrefixCache, before: bytes, tokens: Sequence[int]) -> bytes:
        return next_digest(self, b"", tokens)

    patch.setattr(CachedBlock, "follows", follows)
    patch.setattr(PrefixCache, "next_digest", unsalted)


@fault()
def what_a_failed_request_published_stays(patch: Patch) -> None:
    patch.setattr(PagedKv, "discard", lambda self, request: None)


@fault()
def what_it_published_before_a_preemption_stays(patch: Patch) -> None:
    release = PagedKv.release

    def forgetting(self: PagedKv, request: Request) -> None:
        release(self, request)
        request.published = []

    patch.setattr(PagedKv, "release", forgetting)


@fault()
def rows_whose_logits_are_wanted_are_taken_from_the_cache(patch: Patch) -> None:
    patch.setattr(Request, "wanted_prompt_logprobs", property(lambda self: 0))


@fault(use_cache=False)
def choices_share_their_prompt_when_everything_is_computed_again(patch: Patch) -> None:
    init = PagedKv.__init__

    def sharing(self: PagedKv, *args: Any, **options: Any) -> None:
        init(self, *args, **{**options, "shares_prompts": True})

    patch.setattr(PagedKv, "__init__", sharing)


# The scheduler.


@fault()
def a_preempted_request_loses_its_last_token(patch: Patch) -> None:
    preempt = Scheduler.preempt

    def losing(self: Scheduler, request: Request) -> None:
        del request.output_token_ids[-1:]
        preempt(self, request)

    patch.setattr(Scheduler, "preempt", losing)


@fault(max_preemptions=0, batching="continuous")
def preemptions_have_no_bound(patch: Patch) -> None:
    patch.setattr(Scheduler, "_is_reserved", lambda self, request: self.batching.reserves)


@fault()
def a_request_with_all_its_memory_does_not_reserve_it(patch: Patch) -> None:
    admit = PagedKv.admit
    patch.setattr(
        PagedKv,
        "admit",
        lambda self, request, *, spare, reserve: admit(self, request, spare=spare, reserve=False),
    )


@fault()
def a_broken_pass_counts(patch: Patch) -> None:
    def counting(self: Scheduler, schedule: Schedule) -> None:
        for rows in schedule.rows:
            if rows.request.state is RequestState.RUNNING and not rows.samples:
                self.update(rows, None)

    patch.setattr(Scheduler, "roll_back", counting)


@fault(batching="static")
def ended_requests_of_a_dissolved_batch_keep_their_places(patch: Patch) -> None:
    preempt = Scheduler.preempt

    def keeping(self: Scheduler, request: Request) -> None:
        ended, self.batching.ended = self.batching.ended, []
        preempt(self, request)
        self.batching.ended = ended

    patch.setattr(Scheduler, "preempt", keeping)


@fault(batching="static")
def the_last_row_of_an_ended_request_is_written_again(patch: Patch) -> None:
    def last(request: Request) -> ScheduledRows:
        return ScheduledRows(request, request.num_computed_tokens - 1, 1, True, discarded=True)

    patch.setattr(scheduler, "discarded_row", last)


@fault(batching="static")
def blocks_that_ended_requests_write_are_shared(patch: Patch) -> None:
    patch.setattr(Scheduler, "_is_full", lambda self, request: False)


@fault(batching="continuous")
def a_stream_is_passed_over(patch: Patch) -> None:
    decoding = batching.ContinuousBatching.decoding
    patch.setattr(
        batching.ContinuousBatching,
        "decoding",
        lambda self, running: decoding(self, running)[: max(len(running) - 2, 1)],
    )


@fault(batching="static")
def a_static_batch_lets_requests_in(patch: Patch) -> None:
    patch.setattr(batching.StaticBatching, "admits", lambda self, running: True)


@fault()
def the_youngest_prompt_is_taken_for_the_oldest(patch: Patch) -> None:
    divide = prefill.divide_prefill

    def reversed_ages(kv: Any, reading: Sequence[Request], budget: int) -> list[ScheduledRows]:
        return divide(kv, reading[::-1], budget)

    patch.setattr(scheduler, "divide_prefill", reversed_ages)


@fault()
def prompts_take_one_row_too_many(patch: Patch) -> None:
    divide = prefill.divide_prefill
    patch.setattr(
        scheduler, "divide_prefill", lambda kv, reading, budget: divide(kv, reading, budget + 1)
    )


@fault()
def two_prompts_compute_the_same_block_and_one_is_lost(patch: Patch) -> None:
    replace = PagedKv._replace

    def losing(self: PagedKv, request: Request, entry: CachedBlock) -> None:
        replace(self, request, entry)
        request.block_table[len(request.chain) - 1] = request.chain[0].block

    patch.setattr(PagedKv, "_replace", losing)


@fault()
def aborted_choices_still_count(patch: Patch) -> None:
    finish = Scheduler.finish

    def miscounting(self: Scheduler, request: Request, reason: Any) -> None:
        deferred = self.num_deferred
        finish(self, request, reason)
        if reason == "abort" and not request.followers:
            self.num_deferred = deferred

    patch.setattr(Scheduler, "finish", miscounting)


# The queue.


@fault()
def who_was_preempted_goes_to_the_end(patch: Patch) -> None:
    patch.setattr(waiting_queue, "_goes_ahead", lambda request: request.leader is not None)


@fault()
def priorities_are_ignored(patch: Patch) -> None:
    first = waiting_queue.WaitingQueue.first

    def last_class(self: waiting_queue.WaitingQueue) -> Request | None:
        return self._classes[self._priorities[-1]].first() if self._priorities else first(self)

    patch.setattr(waiting_queue.WaitingQueue, "first", last_class)


@fault()
def users_are_served_by_arrival_alone(patch: Patch) -> None:
    patch.setattr(waiting_queue._PriorityClass, "_service", lambda self, user: 0)


# The engine.


@fault()
def deadlines_are_forgotten(patch: Patch) -> None:
    patch.setattr(Deadlines, "expired", lambda self, now: [])


@fault()
def a_deadline_that_passes_in_a_broken_pass_is_never_told(patch: Patch) -> None:
    step = Engine.step

    def forgetful(self: Engine, now: float) -> Any:
        try:
            return step(self, now)
        except BaseException:
            self._expired.clear()
            raise

    patch.setattr(Engine, "step", forgetful)


@fault()
def owners_who_have_gone_are_told(patch: Patch) -> None:
    patch.setattr(Engine, "abort", lambda self, request: self.scheduler.finish(request, "abort"))


@fault()
def ended_requests_are_remembered(patch: Patch) -> None:
    remembered: list[Request] = []
    finish = Scheduler.finish

    def remembering(self: Scheduler, request: Request, reason: Any) -> None:
        remembered.append(request)
        finish(self, request, reason)

    patch.setattr(Scheduler, "finish", remembering)


@fault()
def a_token_is_recorded_twice(patch: Patch) -> None:
    update = Scheduler.update

    def twice(self: Scheduler, rows: ScheduledRows, token: int | None) -> None:
        update(self, rows, token)
        if token is not None and len(rows.request.output_token_ids) == 3:
            update(self, rows, token)

    patch.setattr(Scheduler, "update", twice)
