"""What an engine has done, counted and timed. Seconds, from a monotonic clock."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from farthing.engine.kv_manager import KvUsage

if TYPE_CHECKING:
    from farthing.engine.request import FinishReason, Request

# Upper bounds of buckets: vLLM's, so that what reads its metrics reads these.

FIRST_TOKEN_BOUNDS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
"""Of times from arrival to the first token."""

TOKEN_BOUNDS = (
    *(0.002, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0),
    *(7.5, 10.0, 20.0, 40.0, 80.0),
)
"""Of times from token to token; the two lowest are our own: small models are as fast on CPUs."""

LATENCY_BOUNDS = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0),
    *(240.0, 480.0, 960.0, 1920.0, 7680.0),
)
"""Of times of whole requests, and of their stages."""

LENGTH_BOUNDS = tuple(float(m * 10**power) for power in range(6) for m in (1, 2, 5))
"""Of numbers of tokens of a request."""

STEP_BOUNDS = tuple(float(2**power) for power in (0, *range(3, 14)))
"""Of numbers of tokens that a step computes."""

CHOICE_BOUNDS = (1.0, 2.0, 5.0, 10.0, 20.0)
"""Of numbers of choices of a prompt."""

PREEMPTION_BOUNDS = (0.0, 1.0, 2.0, 3.0, 5.0, 10.0)
"""Of how often a request had to give way."""


@dataclass(slots=True)
class Histogram:
    """Counts of values by bucket; the last is of those above every bound."""

    bounds: tuple[float, ...]
    counts: list[int] = field(init=False)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        """Counts a value; a bound belongs to the bucket below it."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        """Values counted."""
        return sum(self.counts)


_FIRST_TOKEN = partial(Histogram, FIRST_TOKEN_BOUNDS)
_TOKEN = partial(Histogram, TOKEN_BOUNDS)
_LATENCY = partial(Histogram, LATENCY_BOUNDS)
_LENGTH = partial(Histogram, LENGTH_BOUNDS)
_STEP = partial(Histogram, STEP_BOUNDS)
_CHOICES = partial(Histogram, CHOICE_BOUNDS)
_PREEMPTIONS = partial(Histogram, PREEMPTION_BOUNDS)


@dataclass(slots=True)
class RequestMetrics:
    """Counts and durations of one request."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0  # of the prompt, found in the prefix cache
    preemptions: int = 0
    queue_seconds: float = 0.0  # from arrival to the first pass
    prefill_seconds: float = 0.0  # from the first pass to the first token
    decode_seconds: float = 0.0  # from the first token to the last

    @property
    def time_to_first_token(self) -> float:
        """From arrival to the first token."""
        return self.queue_seconds + self.prefill_seconds

    @property
    def tokens_per_second(self) -> float | None:
        """Decode rate: tokens after the first by the time they took; None for fewer than two."""
        if self.completion_tokens < 2 or self.decode_seconds <= 0:
            return None
        return (self.completion_tokens - 1) / self.decode_seconds


@dataclass(slots=True)
class EngineMetrics:
    """Sums over the life of an engine. What is the case now, :meth:`Engine.load` says.

    A choice counts as a request of its own but for ``choices`` and ``longest_choice``, which are
    observed once a prompt, when its last choice has ended.
    """

    steps: int = 0
    step_seconds: float = 0.0
    decode_rows: int = 0  # rows of passes: next tokens of running requests
    prefill_rows: int = 0  # and prompts, or what is computed again
    prompt_tokens: int = 0  # of requests that got their first token
    cached_tokens: int = 0  # of those, found in the prefix cache or shared with the first choice
    generation_tokens: int = 0
    preemptions: int = 0
    prefix_queries: int = 0  # tokens of prompts that were looked up in the prefix cache
    prefix_hits: int = 0  # of those, found
    finished: Counter[FinishReason] = field(default_factory=Counter)

    kv_reserved: int = 0  # tokens that block tables had room for, summed over steps
    kv_stored: int = 0  # of those, filled

    step_tokens: Histogram = field(default_factory=_STEP)

    # Observed when a request gets a token.
    time_to_first_token: Histogram = field(default_factory=_FIRST_TOKEN)
    queue: Histogram = field(default_factory=_LATENCY)  # from arrival to the first pass
    prefill: Histogram = field(default_factory=_LATENCY)  # from there to the first token
    inter_token: Histogram = field(default_factory=_TOKEN)
    request_prompt_tokens: Histogram = field(default_factory=_LENGTH)
    computed_prompt_tokens: Histogram = field(default_factory=_LENGTH)  # not found in the cache

    # Observed when a request ends.
    latency: Histogram = field(default_factory=_LATENCY)
    inference: Histogram = field(default_factory=_LATENCY)  # from the first pass to the last token
    decode: Histogram = field(default_factory=_LATENCY)  # from the first token to the last
    time_per_token: Histogram = field(default_factory=_TOKEN)  # a request's mean after the first
    request_generation_tokens: Histogram = field(default_factory=_LENGTH)
    request_max_tokens: Histogram = field(default_factory=_LENGTH)  # what it was allowed
    request_preemptions: Histogram = field(default_factory=_PREEMPTIONS)
    choices: Histogram = field(default_factory=_CHOICES)
    longest_choice: Histogram = field(default_factory=_LENGTH)  # tokens

    @property
    def kv_waste(self) -> float:
        """Share of the reserved room of the KV cache that held no token, over all steps."""
        return 1 - self.kv_stored / self.kv_reserved if self.kv_reserved else 0.0

    def record_step(self, seconds: float, decode_rows: int, prefill_rows: int) -> None:
        """A step, and the rows that it computed."""
        self.steps += 1
        self.step_seconds += seconds
        self.decode_rows += decode_rows
        self.prefill_rows += prefill_rows
        self.step_tokens.observe(decode_rows + prefill_rows)

    def record_begin(self, request: Request) -> None:
        """That ``request`` was looked up in the prefix cache and runs for the first time."""
        if request.leader is None and request.params.prompt_logprobs is None:
            self.prefix_queries += request.num_prompt_tokens
            self.prefix_hits += request.num_cached_tokens

    def record_token(self, request: Request, now: float) -> None:
        """A token that ``request`` got in a pass that has ended ``now``."""
        self.generation_tokens += 1
        if request.first_token_at is None:
            request.first_token_at = now
            assert request.admitted_at is not None
            self.prompt_tokens += request.num_prompt_tokens
            self.cached_tokens += request.num_cached_tokens
            self.request_prompt_tokens.observe(request.num_prompt_tokens)
            self.computed_prompt_tokens.observe(
                request.num_prompt_tokens - request.num_cached_tokens
            )
            self.time_to_first_token.observe(now - request.arrived_at)
            self.queue.observe(request.admitted_at - request.arrived_at)
            self.prefill.observe(now - request.admitted_at)
        else:
            assert request.last_token_at is not None
            self.inter_token.observe(now - request.last_token_at)
        request.last_token_at = now

    def record_end(self, request: Request, now: float) -> None:
        """That ``request`` has finished."""
        assert request.finish_reason is not None
        self.finished[request.finish_reason] += 1
        request.ended_at = now
        self.latency.observe(now - request.arrived_at)
        tokens = len(request.output_token_ids)
        self.request_generation_tokens.observe(tokens)
        self.request_max_tokens.observe(request.max_tokens)
        self.request_preemptions.observe(request.num_preemptions)
        if request.first_token_at is not None and request.last_token_at is not None:
            assert request.admitted_at is not None
            decode_seconds = request.last_token_at - request.first_token_at
            self.decode.observe(decode_seconds)
            self.inference.observe(request.last_token_at - request.admitted_at)
            if tokens > 1:
                self.time_per_token.observe(decode_seconds / (tokens - 1))
        first = request.leader or request
        first.num_ended_choices += 1
        first.longest_choice = max(first.longest_choice, tokens)
        if first.num_ended_choices == first.params.n:
            self.choices.observe(first.params.n)
            self.longest_choice.observe(first.longest_choice)


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """What an engine has to do, and where its memory is."""

    num_running: int
    num_waiting: int  # not begun, or preempted
    num_deferred: int  # of those, choices that wait for the one that reads their prompt
    kv: KvUsage


def together(choices: Sequence[RequestMetrics]) -> RequestMetrics:
    """Of the choices of a prompt: all tokens, the first one's waiting, the longest decode."""
    return replace(
        choices[0],
        completion_tokens=sum(choice.completion_tokens for choice in choices),
        preemptions=sum(choice.preemptions for choice in choices),
        decode_seconds=max(choice.decode_seconds for choice in choices),
    )


def metrics_of(request: Request) -> RequestMetrics:
    """Counts and durations of ``request`` so far."""
    metrics = RequestMetrics(
        prompt_tokens=request.num_prompt_tokens,
        completion_tokens=len(request.output_token_ids),
        cached_tokens=request.num_cached_tokens,
        preemptions=request.num_preemptions,
    )
    if request.admitted_at is not None:
        metrics.queue_seconds = request.admitted_at - request.arrived_at
        if request.first_token_at is not None:
            metrics.prefill_seconds = request.first_token_at - request.admitted_at
    if request.first_token_at is not None and request.last_token_at is not None:
        metrics.decode_seconds = request.last_token_at - request.first_token_at
    return metrics
