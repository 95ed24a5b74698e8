"""The engine: requests in, tokens out, one step at a time."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from farthing.engine.block_pool import BlockPool
from farthing.engine.contiguous_kv import ContiguousKv
from farthing.engine.deadlines import Deadlines
from farthing.engine.draws import Draw, problem_of
from farthing.engine.kv_manager import KvManager, table_tokens
from farthing.engine.metrics import EngineLoad, EngineMetrics
from farthing.engine.paged_kv import PagedKv
from farthing.engine.prefix_cache import PrefixCache, salt_of
from farthing.engine.request import Request
from farthing.engine.schedule import Schedule, ScheduledRows
from farthing.engine.scheduler import Scheduler, SchedulerConfig
from farthing.errors import ContextLengthError, FarthingError, InvalidParameterError
from farthing.sampling.grammar.compiler import GrammarCompiler
from farthing.sampling.params import SamplingParams
from farthing.sampling.request_sampler import RequestSampler
from farthing.sampling.sampler import TokenLogprob
from farthing.sampling.vocabulary import SamplingVocabulary

KvName = Literal["paged", "contiguous"]


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """How an engine gives out time and memory."""

    max_model_len: int  # tokens of one sequence
    scheduler: SchedulerConfig
    kv: KvName = "paged"
    prefix_caching: bool = True


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """A request got a token, or log probabilities of its prompt, or ended without one.

    Of each request one event is its last: ``request.finished`` is true. In a static batch that may
    come after its last token. ``problem`` says why it ended with ``error``.
    """

    request: Request
    token: int | None
    logprobs: list[TokenLogprob] | None = None
    prompt_logprobs: Sequence[list[TokenLogprob]] = ()
    problem: FarthingError | None = None


class ModelRunner(Protocol):
    """What computes the steps: a model, or in simulations what checks them."""

    @property
    def num_blocks(self) -> int:
        """Blocks of the KV cache."""

    def run(self, schedule: Schedule) -> dict[str, Draw]:
        """Copies blocks, computes rows; returns what their logits gave by request id."""


class Engine:
    """Generates for any number of requests that share one model and one KV cache.

    ``step`` is a function of the engine's state, the requests added and aborted before it, and
    ``now``: it reads no clock. Its owner serializes calls, measures and sleeps.
    """

    def __init__(
        self,
        runner: ModelRunner,
        config: EngineConfig,
        *,
        vocabulary: SamplingVocabulary,
        grammars: GrammarCompiler,
        eos_token_ids: Sequence[int],
    ) -> None:
        self.runner = runner
        self.config = config
        self.vocabulary = vocabulary
        self.eos_token_ids = frozenset(eos_token_ids)
        self.grammars = grammars
        self.kv, self.prefix_cache = _kv_manager(config, runner.num_blocks)
        self.scheduler = Scheduler(self.kv, config.scheduler)
        self.metrics = EngineMetrics()
        self.last_schedule = Schedule()  # until the step is recorded
        self._deadlines = Deadlines()
        self._expired: list[TokenEvent] = []  # not told yet
        self._ids = itertools.count()

    @property
    def has_work(self) -> bool:
        """True while any request is unfinished, or has ended and :meth:`step` has not said so."""
        return self.scheduler.has_work or bool(self._expired or self.scheduler.let_go)

    def make_request(
        self,
        prompt_token_ids: Sequence[int],
        params: SamplingParams,
        *,
        user: str = "",
        priority: int = 0,
        cache_salt: str | None = None,
        deadline: float | None = None,
    ) -> list[Request]:
        """Checks a prompt and makes a request of each of its ``params.n`` choices, not yet queued.

        ``user``: whom the work is charged to. ``priority``: lower is sooner. ``cache_salt``: cached
        blocks are shared only among requests with the same. ``deadline``: in seconds of the clock
        that :meth:`step` is given; what is unfinished then ends with ``timeout``.

        Raises :class:`InvalidParameterError` for an empty prompt and for parameters that name what
        the vocabulary does not have or a grammar that is too complex for it,
        :class:`ContextLengthError` for a prompt that leaves no room to generate.
        """
        length = len(prompt_token_ids)
        if length == 0:
            raise InvalidParameterError("prompt: it has no tokens, at least one is needed")
        room = self.config.max_model_len - length
        if room < 1:
            raise ContextLengthError(
                f"prompt of {length} tokens does not fit the context of "
                f"{self.config.max_model_len} tokens with one left to generate"
            )
        request_id = str(next(self._ids))
        stop_ids = frozenset(params.stop_token_ids or ())
        seed = secrets.randbits(64) if params.seed is None else params.seed

        def choice(index: int, leader: Request | None) -> Request:
            return Request(
                request_id=request_id if leader is None else f"{request_id}-{index}",
                prompt_token_ids=tuple(prompt_token_ids),
                params=params if leader is None else replace(params, prompt_logprobs=None),
                stop_token_ids=stop_ids if params.ignore_eos else stop_ids | self.eos_token_ids,
                max_tokens=room if params.max_tokens is None else min(params.max_tokens, room),
                seed=seed,
                choice=index,
                leader=leader,
                user=user,
                priority=priority,
                salt=b"" if cache_salt is None else salt_of(cache_salt),
                deadline=deadline,
            )

        first = choice(0, None)
        if (needed := self.kv.blocks_needed(first)) > self.runner.num_blocks:
            raise ContextLengthError(
                f"prompt of {length} tokens with {first.max_tokens} to generate needs {needed} "
                f"KV blocks, the cache has {self.runner.num_blocks}"
            )
        first.followers = [choice(index, first) for index in range(1, params.n)]
        requests = [first, *first.followers]
        for request in requests:
            self._equip(request)
        return requests

    def _equip(self, request: Request) -> None:
        """What draws its tokens."""
        params = request.params
        ends = frozenset(params.stop_token_ids or ()) | self.eos_token_ids
        request.sampler = RequestSampler(
            params,
            request.seed,
            request.prompt_token_ids,
            {token for token in ends if token < self.vocabulary.size},
            self.vocabulary,
            request.choice,
        )
        if params.structured_outputs is not None:
            request.grammar = self.grammars.matcher(
                params.structured_outputs, ignore_eos=params.ignore_eos
            )

    def add_request(self, request: Request, now: float) -> None:
        """Queues a request, with its followers."""
        self.scheduler.add(request, now)
        for each in (request, *request.followers):
            each.arrived_at = now
            self._deadlines.add(each)

    def step(self, now: float) -> list[TokenEvent]:
        """Runs one pass and returns what each request that got a token or ended now has.

        ``now``: seconds of the caller's monotonic clock. If the pass is broken off by an exception,
        its requests begin again in a later one, which also says whose time has run out meanwhile.
        """
        self._expired += map(self._expire, self._deadlines.expired(now))
        schedule = self.scheduler.schedule(now)
        self.last_schedule = schedule
        draws: dict[str, Draw] = {}
        if schedule:
            try:
                draws = self.runner.run(schedule)
            except BaseException:
                self.scheduler.roll_back(schedule)
                raise
        events, self._expired = self._expired, []
        for rows in schedule.rows:
            draw = draws.get(rows.request.request_id)
            if draw is None:
                self.scheduler.update(rows, None)
            elif draw.token is not None and draw.token < 0:
                self.scheduler.finish(rows.request, "error")
                events.append(TokenEvent(rows.request, None, problem=problem_of(draw)))
            else:
                events.append(self._accept(rows, draw))
        if self.scheduler.let_go:
            events += self._let_go(events)
        return events

    def _let_go(self, events: Sequence[TokenEvent]) -> list[TokenEvent]:
        """The ends that came with a batch's, of requests that ``events`` do not mention anyway."""
        told = {event.request.request_id for event in events}
        let_go, self.scheduler.let_go = self.scheduler.let_go, []
        return [TokenEvent(r, None) for r in let_go if r.request_id not in told]

    def _expire(self, request: Request) -> TokenEvent:
        self.scheduler.finish(request, "timeout")
        return TokenEvent(request, None)

    def _accept(self, rows: ScheduledRows, draw: Draw) -> TokenEvent:
        """Records what the logits of ``rows`` gave."""
        request, grammar = rows.request, rows.request.grammar
        if grammar is not None and draw.token is not None:
            grammar.accept(draw.token)
            if grammar.error is not None:
                self.scheduler.finish(request, "error")
                return TokenEvent(request, None, problem=problem_of(draw))
        self.scheduler.update(rows, draw.token)
        if grammar is not None and grammar.finished:
            self.scheduler.finish(request, "stop")
            request.finish_reason = "stop"  # also when the same token was the last allowed
        request.num_prompt_logprobs += len(draw.prompt_logprobs)
        return TokenEvent(request, draw.token, draw.logprobs, draw.prompt_logprobs)

    def record(self, events: Sequence[TokenEvent], started: float, ended: float) -> tuple[int, int]:
        """Enters a step that took from ``started`` to ``ended`` in :attr:`metrics`.

        Returns its rows, as :meth:`Schedule.count_rows` does.
        """
        metrics, scheduler = self.metrics, self.scheduler
        rows = self.last_schedule.count_rows()
        metrics.record_step(ended - started, *rows)
        self.last_schedule = Schedule()
        if self.prefix_cache is not None:
            for request in scheduler.begun:
                metrics.record_begin(request)
        scheduler.begun.clear()
        for event in events:
            if event.token is not None:
                metrics.record_token(event.request, ended)
        metrics.preemptions = scheduler.num_preemptions
        reserved, stored = table_tokens(scheduler.holders())
        metrics.kv_reserved += reserved
        metrics.kv_stored += stored
        self.record_ends(ended)
        return rows

    def record_ends(self, now: float) -> None:
        """Enters who has ended, also between two steps, in :attr:`metrics`."""
        for request in self.scheduler.ended:
            self.metrics.record_end(request, now)
        self.scheduler.ended.clear()

    def load(self) -> EngineLoad:
        """What there is to do at this moment."""
        scheduler = self.scheduler
        usage = self.kv.usage(scheduler.holders())
        return EngineLoad(
            len(scheduler.running), scheduler.num_waiting, scheduler.num_deferred, usage
        )

    def stop(self, request: Request, stop_reason: str) -> None:
        """Ends a request whose text reached a stop string."""
        self.scheduler.finish(request, "stop")
        request.finish_reason = "stop"  # also when the same token was the last allowed
        request.stop_reason = stop_reason

    def fail(self, request: Request) -> None:
        """Ends a request whose output could not be processed."""
        self.scheduler.finish(request, "error")
        request.finish_reason = "error"

    def abort(self, request: Request) -> None:
        """Ends a request in any state and returns its blocks. Twice is once.

        No event tells of it, nor of an end that it had already come to unseen.
        """
        self.scheduler.finish(request, "abort")
        self._expired = [event for event in self._expired if event.request is not request]
        if request in self.scheduler.let_go:
            self.scheduler.let_go.remove(request)

    def check_integrity(self) -> None:
        """Asserts that blocks and requests are accounted for. For tests and idle moments."""
        self.scheduler.check_integrity()


def _kv_manager(config: EngineConfig, num_blocks: int) -> tuple[KvManager, PrefixCache | None]:
    if config.kv == "contiguous":
        return ContiguousKv(num_blocks, config.max_model_len), None
    pool = BlockPool(num_blocks)
    use_cache = config.scheduler.use_cache
    caches = caches_prefixes(config.kv, config.prefix_caching, use_cache)
    prefix_cache = PrefixCache(pool) if caches else None
    return PagedKv(pool, prefix_cache, shares_prompts=use_cache), prefix_cache


def caches_prefixes(kv: KvName, prefix_caching: bool, use_cache: bool) -> bool:
    """Whether what one request has computed can be found by another."""
    return kv == "paged" and prefix_caching and use_cache
