"""What an engine has done, counted and timed. Seconds, from a monotonic clock."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from farthing.engine.kv_manager import KvUsage

if TYPE_CHECKING:
    from farthing.engine.request import FinishReason, Request

LONG_BOUNDS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
    *(25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0),
)
"""Upper bounds of the buckets of times of whole requests."""

SHORT_BOUNDS = (
    *(0.001, 0.002, 0.004, 0.008, 0.015, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5),
    *(0.75, 1.0, 2.0, 5.0, 10.0),
)
"""Upper bounds of the buckets of times between tokens."""


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
    """Sums over the life of an engine. What is the case now, :meth:`Engine.load` says."""

    steps: int = 0
    step_seconds: float = 0.0
    prompt_tokens: int = 0  # of requests that have been admitted
    cached_tokens: int = 0  # of those, found in the prefix cache
    generation_tokens: int = 0
    preemptions: int = 0
    finished: Counter[FinishReason] = field(default_factory=Counter)

    kv_reserved: int = 0  # tokens that block tables had room for, summed over steps
    kv_stored: int = 0  # of those, filled

    time_to_first_token: Histogram = field(default_factory=lambda: Histogram(LONG_BOUNDS))
    inter_token: Histogram = field(default_factory=lambda: Histogram(SHORT_BOUNDS))
    queue: Histogram = field(default_factory=lambda: Histogram(LONG_BOUNDS))
    prefill: Histogram = field(default_factory=lambda: Histogram(LONG_BOUNDS))
    decode: Histogram = field(default_factory=lambda: Histogram(LONG_BOUNDS))
    latency: Histogram = field(default_factory=lambda: Histogram(LONG_BOUNDS))

    @property
    def kv_waste(self) -> float:
        """Share of the reserved room of the KV cache that held no token, over all steps."""
        return 1 - self.kv_stored / self.kv_reserved if self.kv_reserved else 0.0

    def record_token(self, request: Request, now: float) -> None:
        """A token that ``request`` got in a pass that has ended ``now``."""
        self.generation_tokens += 1
        if request.first_token_at is None:
            request.first_token_at = now
            assert request.admitted_at is not None
            self.prompt_tokens += request.num_prompt_tokens
            self.cached_tokens += request.num_cached_tokens
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
        if request.first_token_at is not None and request.last_token_at is not None:
            self.decode.observe(request.last_token_at - request.first_token_at)


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """What an engine has to do, and where its memory is."""

    num_running: int
    num_waiting: int  # not begun, or preempted
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
