"""An engine, those who use it, and what must hold after whatever they do."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain

from farthing.engine.block_pool import BLOCK_TOKENS
from farthing.engine.engine import Engine, EngineConfig, TokenEvent
from farthing.engine.paged_kv import PagedKv
from farthing.engine.prefix_cache import CachedBlock, PrefixCache, salt_of
from farthing.engine.request import Request, RequestState
from farthing.engine.schedule import Schedule
from farthing.errors import ContextLengthError
from farthing.sampling.grammar.compiler import GrammarCompiler
from farthing.sampling.grammar.vocabulary import GrammarVocabulary
from farthing.sampling.params import SamplingParams
from farthing.sampling.vocabulary import SamplingVocabulary
from sampling.word_vocabulary import WordVocabulary
from simulation.checking_runner import CheckingRunner, StepFailedError, prompt_logprobs
from simulation.history import EOS_TOKEN_IDS, VOCAB_SIZE, Solo, begin, extend
from simulation.schedule_rules import (
    Standing,
    check_admission,
    check_progress,
    check_rows,
    standing,
)

Digest = Callable[[bytes, Sequence[int]], bytes]

_RUNNING, _FINISHED = RequestState.RUNNING, RequestState.FINISHED

_WORDS = WordVocabulary(VOCAB_SIZE)
_VOCABULARY = SamplingVocabulary(_WORDS, VOCAB_SIZE)
_GRAMMARS = GrammarCompiler(
    GrammarVocabulary(VOCAB_SIZE, _WORDS.token_bytes, (), EOS_TOKEN_IDS, lambda text: ())
)


@dataclass(frozen=True, slots=True)
class Submission:
    """What a user asks."""

    prompt: tuple[int, ...]
    params: SamplingParams
    user: str = ""
    priority: int = 0
    tenant: str | None = None
    patience: float | None = None  # seconds to its deadline


@dataclass(slots=True, eq=False)
class Watched:
    """One request and what its owner has seen of it."""

    request: Request
    solo: Solo
    tokens: list[int] = field(default_factory=list)
    prompt_logprobs: int = 0
    pushed_out: int = 0  # preemptions that no lack of memory made
    ends: int = 0  # events that told its end
    failing: bool = False  # its draw was made to fail
    owner: str = ""  # what its owner will do with the next token: stop or fail


class World:
    """A production engine over a checking KV cache, and its virtual clock.

    ``digest``: of the prefix cache, if not its own.
    """

    def __init__(self, config: EngineConfig, num_blocks: int, digest: Digest | None = None) -> None:
        self.config = config
        self.now = 0.0
        self.steps = 0
        self.runner = CheckingRunner(num_blocks, self._check_schedule)
        self.engine = Engine(
            self.runner,
            config,
            vocabulary=_VOCABULARY,
            grammars=_GRAMMARS,
            eos_token_ids=EOS_TOKEN_IDS,
        )
        self.runner.engine = self.engine
        kv = self.engine.kv
        if digest is not None and isinstance(kv, PagedKv) and kv.prefix_cache is not None:
            kv.prefix_cache = self.engine.prefix_cache = PrefixCache(kv.pool, digest)
        self.unfinished: dict[str, Watched] = {}
        self.texts: list[tuple[int, ...]] = []  # of requests that ended by themselves
        self.ended: Counter[str] = Counter()  # requests by why they ended
        self.num_tokens = 0
        self.seen: Counter[str] = Counter()  # what has happened
        self._cached: dict[CachedBlock, list[int]] = {}  # what each must hold
        self._before: dict[str, Standing] = {}  # of those that ran before the step
        self._in_pass: list[str] = []  # those that run in it
        self._samplers: list[weakref.ref[object]] = []

    # What users and owners do.

    def submit(self, asked: Submission) -> list[Watched]:
        """Queues a request with its choices; none where the engine rightly refuses it."""
        deadline = None if asked.patience is None else self.now + asked.patience
        room = self.config.max_model_len - len(asked.prompt)
        limit = min(asked.params.max_tokens or room, room)
        needed = -(-(len(asked.prompt) + limit - 1) // BLOCK_TOKENS)
        if self.config.kv == "contiguous":
            needed = -(-self.config.max_model_len // BLOCK_TOKENS)
        fits = room > 0 and needed <= self.runner.num_blocks
        requests, refusal = [], ""
        try:
            requests = self.engine.make_request(
                asked.prompt,
                asked.params,
                user=asked.user,
                priority=asked.priority,
                cache_salt=asked.tenant,
                deadline=deadline,
            )
        except ContextLengthError as error:
            refusal = str(error)
        if refusal:
            assert not fits, f"a request that fits is refused: {refusal}"
            numbers = (needed, self.runner.num_blocks)
            if room <= 0:
                numbers = (len(asked.prompt), self.config.max_model_len)
            assert all(str(number) in refusal for number in numbers), refusal
            self.seen["refused"] += 1
            return []
        assert fits, "a request that never fits is queued"
        salt = b"" if asked.tenant is None else salt_of(asked.tenant)
        watched = []
        for request in requests:
            solo = Solo(
                asked.prompt, salt, request.seed, request.choice, request.stop_token_ids, limit
            )
            watched.append(Watched(request, solo))
            self.unfinished[request.request_id] = watched[-1]
            self.runner.solos[request.request_id] = solo
            assert request.sampler is not None
            self._samplers.append(weakref.ref(request.sampler))
        self.engine.add_request(requests[0], self.now)
        return watched

    def abort(self, watched: Watched) -> None:
        """Its owner goes away."""
        self.seen[f"abort {_stage(watched.request)}"] += 1
        told = watched.request.state is not _FINISHED
        self.engine.abort(watched.request)
        self.engine.abort(watched.request)  # twice is once
        reason = watched.request.finish_reason
        # It may have ended in a pass that broke off, or with its batch, and nobody has been told.
        assert reason == "abort" or not told
        self._end(watched, reason)

    def stop_at_next_token(self, watched: Watched) -> None:
        """Its owner will find a stop string."""
        watched.owner = "stop"

    def fail_at_next_token(self, watched: Watched) -> None:
        """Its owner will not be able to process its output."""
        watched.owner = "fail"

    def preempt(self, watched: Watched) -> None:
        """Takes the memory of a running request."""
        self.seen[f"preempt {_stage(watched.request)}"] += 1
        self.engine.scheduler.preempt(watched.request)
        watched.pushed_out += 1

    def fail_draw(self, watched: Watched) -> None:
        """Its next logits are not finite."""
        self.runner.failing.add(watched.request.request_id)
        watched.failing = True

    def break_off(self, rows: int) -> None:
        """The next pass breaks off after that many rows, or before its copies."""
        self.runner.breaks_after = rows

    def advance(self, seconds: float) -> None:
        """Time passes."""
        self.now += seconds

    # A step, and what must hold after it.

    def step(self) -> list[TokenEvent]:
        """One pass and all checks. A pass that breaks off gives no events."""
        runner, scheduler = self.runner, self.engine.scheduler
        self.steps += 1
        runner.last = None
        self._before = {request.request_id: standing(request) for request in scheduler.running}
        started, broken_off = self.now, False
        try:
            events = self.engine.step(started)
        except StepFailedError:
            events, broken_off = [], True
            self.seen["broken pass"] += 1
            self._note_broken_off()
        for event in events:
            self._receive(event)
        self.engine.record(events, started, self.now)
        for watched in self.unfinished.values():
            request = watched.request
            if request.deadline is not None and request.deadline <= started:
                assert broken_off, "a deadline has passed and nobody is told"
                assert request.finish_reason == "timeout" or request in scheduler.let_go
            if request.state is _FINISHED and not broken_off:
                assert request in scheduler.let_go, "a request has ended and nobody is told"
        assert runner.last is not None or not self.engine.has_work, "work is left, nothing computed"
        self.check()
        return events

    def _check_schedule(self, schedule: Schedule) -> None:
        scheduler = self.engine.scheduler
        self._in_pass = [request.request_id for request in scheduler.running]
        check_rows(scheduler, schedule)
        check_progress(scheduler, schedule, self._before)
        self.seen["copy"] += len(schedule.copies)
        self.seen["broken pass with copies"] += bool(schedule.copies) and self.runner.breaks
        self.seen["discarded row"] += any(rows.discarded for rows in schedule.rows)
        began = [r for r in scheduler.running if self._before.get(r.request_id) is None]
        if began:
            deferred = {f.request_id for w in self.unfinished.values() for f in w.request.followers}
            waiting = [
                w.request
                for name, w in self.unfinished.items()
                if w.request.state is RequestState.WAITING and name not in deferred
            ]
            check_admission(scheduler, began, waiting)

    def _note_broken_off(self) -> None:
        """Those whose rows were not computed, or blocks not copied, begin again."""
        assert self.runner.last is not None
        for rows in self.runner.last.rows:
            assert rows.request.state is not RequestState.RUNNING
        for name in self._in_pass:
            watched = self.unfinished[name]
            watched.pushed_out += watched.request.state is RequestState.WAITING

    def _receive(self, event: TokenEvent) -> None:
        request = event.request
        watched = self.unfinished[request.request_id]
        for logprobs in event.prompt_logprobs:
            expected = prompt_logprobs(watched.solo.chain[watched.prompt_logprobs])
            assert logprobs == expected, f"request {request.request_id}: another row's logits"
            watched.prompt_logprobs += 1
        if event.token is not None:
            place = len(watched.tokens)
            assert event.token == watched.solo.tokens[place], (
                f"request {request.request_id}: token {place} is not what it is alone"
            )
            watched.tokens.append(event.token)
            self.num_tokens += 1
            if watched.owner == "stop":
                self.engine.stop(request, "halt")
                assert request.stop_reason == "halt"
            elif watched.owner == "fail":
                self.engine.fail(request)
        if request.finished:
            watched.ends += 1
            assert request.finish_reason is not None
            if watched.owner != "fail":
                assert (event.problem is not None) == (request.finish_reason == "error")
            self._end(watched, request.finish_reason)

    def _end(self, watched: Watched, reason: str) -> None:
        request, solo = watched.request, watched.solo
        assert request.finished
        self.engine.abort(request)  # too late: it has ended
        assert request.finish_reason == reason
        assert request.output_token_ids == watched.tokens
        assert request.num_cached_tokens <= request.num_prompt_tokens
        assert not request.followers
        if watched.ends:
            assert watched.ends == 1
            assert reason in ("stop", "length", "error", "timeout")
        assert watched.tokens == solo.tokens[: len(watched.tokens)]
        if reason in ("stop", "length") and request.stop_reason != "halt":
            assert watched.tokens == solo.tokens, "it ended elsewhere than alone"
            assert reason == solo.reason
            assert request.stop_reason == (solo.tokens[-1] if reason == "stop" else None)
            if request.params.prompt_logprobs is not None:
                assert watched.prompt_logprobs == request.num_prompt_tokens - 1
            self.texts.append((*request.prompt_token_ids, *watched.tokens))
        if watched.failing and reason == "error" and self.engine.prefix_cache is not None:
            left = [e for e in self.engine.prefix_cache.entries() if self._wrote(request, e)]
            assert not left, f"request {request.request_id} failed and left blocks {left}"
        self.ended[reason] += 1
        whole = request.num_prompt_tokens - 1  # the last token is computed for its logits
        self.seen["preempted for memory"] += request.num_preemptions > watched.pushed_out
        self.seen["prefix found"] += request.num_cached_tokens > 0
        self.seen["whole prompt found"] += whole == request.num_cached_tokens > 0
        del self.unfinished[request.request_id]

    def _wrote(self, request: Request, entry: CachedBlock) -> bool:
        return self.runner.wrote(request, entry.block)

    def check(self) -> None:
        """Asserts what holds at every moment."""
        engine, scheduler = self.engine, self.engine.scheduler
        engine.check_integrity()
        assert engine.has_work == bool(self.unfinished)
        named = Counter(chain.from_iterable(r.block_table for r in scheduler.holders()))
        usage = engine.kv.usage(scheduler.holders())
        assert usage.held_blocks == len(named)
        free = self.runner.num_blocks - usage.held_blocks - usage.cached_blocks
        if isinstance(engine.kv, PagedKv):
            assert free == engine.kv.pool.num_free
        untold = 0
        most = self.config.scheduler.max_preemptions
        for watched in self.unfinished.values():
            request = watched.request
            assert len(request.output_token_ids) == len(watched.tokens)
            assert request.num_cached_tokens <= len(request.prompt_token_ids)
            assert request.num_preemptions <= most + watched.pushed_out
            if request.state is _RUNNING:
                assert request.num_charged_tokens >= request.num_computed_tokens
                continue
            untold += request.state is _FINISHED
            assert not request.block_table
            assert request.num_computed_tokens == 0
        unended = len(self.unfinished) - untold
        assert scheduler.num_waiting + len(scheduler.holders()) == unended
        self._forget_free_blocks(named)
        self._check_prefix_cache()

    def _forget_free_blocks(self, named: Counter[int]) -> None:
        kv, store = self.engine.kv, self.runner.store
        for block in store.dirty - named.keys():
            if not isinstance(kv, PagedKv) or not kv.pool.is_kept(block):
                store.poison(block)

    def _check_prefix_cache(self) -> None:
        """Asserts that every new block in the tree holds what it is found by."""
        cache = self.engine.prefix_cache
        if cache is None:
            return
        known: dict[CachedBlock, list[int]] = {}
        for entry in cache.entries():
            values = self._cached.get(entry)
            if values is None:
                parent = entry.parent
                before = begin(entry.salt) if parent is None else known[parent][-1]
                values = extend(before, entry.tokens)
                assert self.runner.store.block(entry.block) == values, (
                    f"block {entry.block} is kept for what it does not hold"
                )
            known[entry] = values
        self.seen["block cached"] += len(known.keys() - self._cached.keys())
        self.seen["block uncached"] += len(self._cached.keys() - known.keys())
        self._cached = known

    def check_at_rest(self) -> None:
        """Asserts that nothing is left of requests that have all ended, and that counts are right.

        ``step`` must find nothing to do, even when every deadline has passed.
        """
        assert not self.unfinished
        assert self.engine.step(float("inf")) == []
        self.engine.record([], self.now, self.now)
        self.runner.last = None
        scheduler, kv, metrics = self.engine.scheduler, self.engine.kv, self.engine.metrics
        assert not scheduler.holders()
        assert scheduler.num_waiting == 0
        assert kv.usage([]).held_blocks == 0
        if self.engine.prefix_cache is not None:
            self.engine.prefix_cache.clear()
        self.engine.check_integrity()
        if isinstance(kv, PagedKv):
            assert kv.pool.num_free == kv.pool.num_blocks
        assert metrics.finished == self.ended
        assert metrics.generation_tokens == self.num_tokens

    def check_forgotten(self) -> None:
        """Asserts that nobody holds a request any more, once no caller does."""
        kept = [sampler for sampler in self._samplers if sampler() is not None]
        assert not kept, f"{len(kept)} requests that have ended are still in memory"


def _stage(request: Request) -> str:
    """Where ``request`` is, in a word."""
    if request.state is _FINISHED:
        return "untold"
    if request.state is _RUNNING and request.finish_reason is not None:
        return "held"
    if request.state is _RUNNING:
        return "decoding" if request.num_remaining_tokens == 1 else "reading"
    if request.leader is not None and request in request.leader.followers:
        return "deferred"
    return "preempted" if request.num_preemptions else "waiting"
