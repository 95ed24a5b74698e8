"""Decides which tokens of which requests a step computes. Plain data in, plain data out."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass

from farthing.engine.batching import BATCHING, Batching, BatchingName, discarded_row
from farthing.engine.fair_share import VirtualTokenCounters
from farthing.engine.kv_manager import KvManager
from farthing.engine.prefill import divide_prefill
from farthing.engine.request import FinishReason, Request, RequestState
from farthing.engine.schedule import Schedule, ScheduledRows, next_rows
from farthing.engine.waiting_queue import WaitingQueue


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """Bounds and policies of a scheduler."""

    max_num_seqs: int  # requests that run at a time
    max_num_batched_tokens: int  # rows of one pass, at least max_num_seqs
    max_prefill_chunk: int | None = None  # rows of prompts in a pass beside running streams
    max_preemptions: int = 3  # of one request; then it runs with all its memory reserved
    fair_share: bool = True  # between users
    batching: BatchingName = "continuous"
    collect_seconds: float = 0.0  # that a static batch which is not full waits for one more
    use_cache: bool = True  # False: every step starts each sequence again at position 0


class Scheduler:
    """Requests in, steps out; every step gives running streams their next tokens, prompts chunks.

    Memory is given out as sequences grow. When there is none, the newest request of the lowest
    priority gives its own up and is computed again later; after ``max_preemptions`` of that it runs
    only with all its memory reserved. So the oldest request always gets on, and each in the end.
    """

    def __init__(self, kv: KvManager, config: SchedulerConfig) -> None:
        self.kv = kv
        self.config = config
        self._max_running = min(config.max_num_seqs, kv.num_slots or config.max_num_seqs)
        self.batching: Batching = BATCHING[config.batching](
            self._max_running, config.collect_seconds
        )
        self.counters = VirtualTokenCounters()
        self.waiting = WaitingQueue(self.counters if config.fair_share else None)
        self.running: list[Request] = []  # by priority, then arrival
        self.num_deferred = 0  # choices that wait for the first one's prompt
        self.num_preemptions = 0
        self.begun: list[Request] = []  # run for the first time; until their owner has taken note
        self.ended: list[Request] = []  # in this order, until then, too
        self.let_go: list[Request] = []  # held, then ended with their batch; until this is told
        self._arrivals = 0
        self._last_arrival = 0.0
        self._refused: tuple[Request, int] | None = None

    @property
    def has_work(self) -> bool:
        """True while any request is unfinished."""
        return bool(self.running or self.waiting)

    @property
    def num_waiting(self) -> int:
        """Requests that do not run yet, or not any more."""
        return len(self.waiting) + self.num_deferred

    def holders(self) -> list[Request]:
        """Every request that has a block table."""
        return [*self.running, *self.batching.ended]

    def add(self, request: Request, now: float = 0.0) -> None:
        """Queues a request and its followers. The whole pool must hold each (``blocks_needed``)."""
        self._last_arrival = now
        for each in (request, *request.followers):
            each.arrival = self._arrivals
            self._arrivals += 1
            self.counters.enter(each.user)
        self.waiting.push(request)
        self.num_deferred += len(request.followers)

    def schedule(self, now: float) -> Schedule:
        """The next step. ``now``: seconds of the caller's clock."""
        for request in [*self.running]:
            if request.state is RequestState.RUNNING:
                self._grow(request)
        schedule = Schedule()
        waiting = len(self.waiting)
        if waiting and self.batching.admits(self.running, waiting, now - self._last_arrival):
            self._admit(now, schedule)
        decoding = self.batching.decoding(self.running)
        schedule.rows.extend([next_rows(request, 1) for request in decoding])
        schedule.rows.extend(map(discarded_row, self.batching.ended if decoding else ()))
        reading = [request for request in self.running if request.num_remaining_tokens > 1]
        if reading:
            budget = self.config.max_num_batched_tokens - len(schedule.rows)
            if decoding and self.config.max_prefill_chunk is not None:
                budget = min(budget, self.config.max_prefill_chunk)
            schedule.rows.extend(divide_prefill(self.kv, reading, budget))
        return schedule

    def _grow(self, request: Request) -> None:
        """Memory for the tokens of ``request``, if need be of newer ones, or its own for others."""
        while not self.kv.extend(request):
            victim = next(r for r in reversed(self.running) if not self._is_reserved(r))
            self.preempt(victim)
            if victim is request:
                return

    def _is_reserved(self, request: Request) -> bool:
        return self.batching.reserves or request.num_preemptions >= self.config.max_preemptions

    def preempt(self, request: Request) -> None:
        """Takes a running request's memory; it will be computed again."""
        self.running.remove(request)
        self.kv.release(request)
        request.num_preemptions += 1
        self.num_preemptions += 1
        request.state = RequestState.WAITING
        self.waiting.push(request)
        self._let_held_go()

    def _admit(self, now: float, schedule: Schedule) -> None:
        growing = sum(not self._is_reserved(request) for request in self.running)
        while len(self.running) < self._max_running:
            request = self.waiting.first()
            if request is None:
                return
            room = self.kv.num_available - growing
            if self._refused is not None and self._refused[0] is request:
                if room <= self._refused[1]:
                    return
                self._refused = None
            reserve = self._is_reserved(request)
            copies = self.kv.admit(request, spare=growing, reserve=reserve)
            if copies is None:
                self._refused = request, room  # not looked up again before there is more
                return
            growing += not reserve
            schedule.copies.extend(copies)
            self.waiting.remove(request)
            request.state = RequestState.RUNNING
            insort(self.running, request, key=_age)
            found = request.num_computed_tokens
            request.num_charged_tokens = max(request.num_charged_tokens, found)
            if request.admitted_at is None:
                request.admitted_at = now
                request.num_cached_tokens = found
                self.begun.append(request)
                if request.leader is None:
                    self.counters.admitted(request.user)
                self._charge(request, request.num_prompt_tokens)

    def update(self, scheduled: ScheduledRows, token: int | None) -> None:
        """Records that the rows were computed and, if they sampled, the token they gave."""
        request = scheduled.request
        if request.finished or scheduled.discarded:
            return
        request.num_computed_tokens = scheduled.start + scheduled.num_tokens
        self._charge(request, request.num_computed_tokens)
        if not self._is_full(request):
            self.kv.publish(request)
        if request.followers and request.has_stored_prompt:
            self._queue_followers(request)
        if token is None:
            return
        request.output_token_ids.append(token)
        if token in request.stop_token_ids:
            request.stop_reason = token
            self.finish(request, "stop")
        elif len(request.output_token_ids) >= request.max_tokens:
            self.finish(request, "length")
        elif not self.config.use_cache:
            request.num_computed_tokens = 0

    def _is_full(self, request: Request) -> bool:
        """Whether the last row of ``request`` is computed again, so that nobody may share it."""
        full = request.num_computed_tokens == request.most_stored_tokens
        return full and self.batching.holds_ended()

    def _charge(self, request: Request, end: int) -> None:
        """Charges its user for tokens before position ``end``, each once.

        For the whole prompt at the start, so that who is next sees who has just begun (Sheng et al.
        2024, algorithm 2).
        """
        start = request.num_charged_tokens
        if end <= start:
            return
        of_prompt = max(min(end, request.num_prompt_tokens) - start, 0)
        self.counters.charge(request.user, of_prompt, end - start - of_prompt)
        request.num_charged_tokens = end

    def _queue_followers(self, request: Request) -> None:
        for follower in request.followers:
            self.waiting.push(follower)
        self.num_deferred -= len(request.followers)
        request.followers = []

    def finish(self, request: Request, reason: FinishReason) -> None:
        """Ends a request in any state and returns its blocks. Twice is once.

        In a batch that ends together, one that has its last token is held until all have.
        """
        leader = request.leader
        if request.finished:
            return
        if request.arrival < 0:  # never queued
            request.state, request.finish_reason = RequestState.FINISHED, reason
            return
        if request.state is RequestState.RUNNING:
            self._finish_running(request, reason)
            return
        if leader is not None and request in leader.followers:
            leader.followers.remove(request)
            self.num_deferred -= 1
        else:
            self.waiting.remove(request)
        self._end(request, reason)

    def _finish_running(self, request: Request, reason: FinishReason) -> None:
        held = self.batching.ended
        complete = reason in ("stop", "length")
        if request in held:
            if not complete:
                held.remove(request)
                self._end(request, reason)
            return
        self.running.remove(request)
        if reason == "error":
            self.kv.discard(request)
        if complete and self.running and self.batching.holds_ended():
            request.finish_reason = reason
            held.append(request)
        else:
            self._end(request, reason)
        self._let_held_go()

    def _let_held_go(self) -> None:
        """Ends those that wait for the rest of a batch, if that has ended."""
        if self.running:
            return
        for request in self.batching.ended:
            assert request.finish_reason is not None
            self._end(request, request.finish_reason)
        self.let_go += self.batching.ended
        self.batching.ended.clear()

    def _end(self, request: Request, reason: FinishReason) -> None:
        if request.state is RequestState.RUNNING:
            self.kv.release(request)
        request.state = RequestState.FINISHED
        request.finish_reason = reason
        if self._refused is not None and self._refused[0] is request:
            self._refused = None
        self.counters.leave(request.user)
        self.ended.append(request)
        self._queue_followers(request)

    def roll_back(self, schedule: Schedule) -> None:
        """Records that a step was not computed: its requests begin again.

        So do those without rows whose blocks it was to copy: a batch may wait for its prompts.
        """
        computed = {rows.request.request_id for rows in schedule.rows}
        targets = {target for _, target in schedule.copies}
        for request in [*self.running]:
            if request.request_id in computed or not targets.isdisjoint(request.block_table):
                self.preempt(request)

    def check_integrity(self) -> None:
        """Asserts that blocks are accounted for, and requests are where their state says."""
        self.kv.check_integrity([request.block_table for request in self.holders()])
        assert self.running == sorted(self.running, key=_age)
        assert len(self.running) <= self._max_running
        for request in self.running:
            assert request.state is RequestState.RUNNING
            assert request.num_computed_tokens < request.num_tokens


def _age(request: Request) -> tuple[int, int]:
    return request.priority, request.arrival
