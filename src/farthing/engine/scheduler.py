"""Decides which tokens of which requests a step computes. Plain data in, plain data out."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from farthing.engine.block_pool import BlockPool, blocks_for
from farthing.engine.request import FinishReason, Request, RequestState

MAX_PROMPT_LOGITS = 64
"""Prompt rows of a step whose logits are kept: each has as many floats as the vocabulary."""


@dataclass(frozen=True, slots=True)
class ScheduledRows:
    """``num_tokens`` tokens of ``request`` from position ``start``.

    ``samples``: the last row reaches the end of the sequence, so its logits give the next token.
    ``prompt_logits``: rows, the last or those before the one that samples, whose logits give log
    probabilities of the prompt's next tokens.
    """

    request: Request
    start: int
    num_tokens: int
    samples: bool
    prompt_logits: int = 0

    @property
    def num_logits(self) -> int:
        """Rows at the end whose logits are needed."""
        return self.prompt_logits + self.samples


class Scheduler:
    """First-come first-served, mixing decode tokens with prompt chunks under a token budget.

    A request is admitted when the pool has blocks for all it may ever store, so a running request
    never waits for memory. Without ``use_cache`` each step starts the sequence again at position 0.
    """

    def __init__(
        self, pool: BlockPool, *, max_num_seqs: int, max_num_batched_tokens: int, use_cache: bool
    ) -> None:
        self.pool = pool
        self.max_num_seqs = max_num_seqs
        self.max_num_batched_tokens = max_num_batched_tokens
        self.use_cache = use_cache
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []

    @property
    def has_work(self) -> bool:
        """True while any request is unfinished."""
        return bool(self.waiting or self.running)

    def add(self, request: Request) -> None:
        """Queues a request. It must fit the pool: see :func:`blocks_needed`."""
        self.waiting.append(request)

    def schedule(self, now: float) -> list[ScheduledRows]:
        """The next step: running requests in order of arrival, as far as the budget goes."""
        self._admit(now)
        budget = self.max_num_batched_tokens
        logit_budget = MAX_PROMPT_LOGITS
        decoding = sum(r.num_tokens - r.num_computed_tokens == 1 for r in self.running)
        scheduled = []
        for request in self.running:
            remaining = request.num_tokens - request.num_computed_tokens
            if remaining == 1:
                decoding -= 1
                count = 1
            else:
                count = min(remaining, budget - decoding)  # leaves a row for each decode behind it
            count = _limited_by_logits(request, count, logit_budget)
            if count <= 0:
                continue
            budget -= count
            rows = _rows(request, count)
            logit_budget -= rows.prompt_logits
            scheduled.append(rows)
        return scheduled

    def update(self, scheduled: ScheduledRows, token: int | None) -> None:
        """Records that the rows were computed and, if they sampled, the token they gave."""
        request = scheduled.request
        if request.finished:
            return
        request.num_computed_tokens = scheduled.start + scheduled.num_tokens
        if token is None:
            return
        request.output_token_ids.append(token)
        if token in request.stop_token_ids:
            request.stop_reason = token
            self.finish(request, "stop")
        elif len(request.output_token_ids) >= request.max_tokens:
            self.finish(request, "length")
        elif not self.use_cache:
            request.num_computed_tokens = 0

    def finish(self, request: Request, reason: FinishReason) -> None:
        """Ends a request in any state and returns its blocks."""
        if request.state is RequestState.WAITING:
            self.waiting.remove(request)
        elif request.state is RequestState.RUNNING:
            self.running.remove(request)
            self.pool.free(request.block_table)
            request.block_table = []
        else:
            return
        request.state = RequestState.FINISHED
        request.finish_reason = reason

    def _admit(self, now: float) -> None:
        while self.waiting and len(self.running) < self.max_num_seqs:
            request = self.waiting[0]
            needed = blocks_needed(request)
            if needed > self.pool.num_free:
                return
            self.waiting.popleft()
            request.block_table = self.pool.allocate(needed)
            request.state = RequestState.RUNNING
            request.admitted_at = now
            self.running.append(request)


def _first_prompt_logit(request: Request) -> int:
    """Position of the first row whose logits give a log probability not known yet."""
    return max(request.num_computed_tokens, request.num_prompt_logprobs)


def _limited_by_logits(request: Request, count: int, logit_budget: int) -> int:
    """``count`` rows, or fewer where those would need logits of more prompt rows than budgeted."""
    if request.wanted_prompt_logprobs <= logit_budget:
        return count
    return min(count, _first_prompt_logit(request) + logit_budget - request.num_computed_tokens)


def _rows(request: Request, count: int) -> ScheduledRows:
    start = request.num_computed_tokens
    end = start + count
    prompt_logits = 0
    if request.wanted_prompt_logprobs > 0:
        last = len(request.prompt_token_ids) - 1  # its logits are of the first generated token
        prompt_logits = max(min(end, last) - _first_prompt_logit(request), 0)
    return ScheduledRows(request, start, count, end == request.num_tokens, prompt_logits)


def blocks_needed(request: Request) -> int:
    """Blocks for all a request may store: the last token it samples is never stored."""
    return blocks_for(len(request.prompt_token_ids) + request.max_tokens - 1)
