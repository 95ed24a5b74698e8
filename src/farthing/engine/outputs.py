"""What callers receive; names and meanings as in vLLM."""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from farthing.engine.metrics import RequestMetrics
from farthing.engine.request import FinishReason


@dataclass(frozen=True, slots=True)
class Logprob:
    """Log probability of one token at one position; ``rank`` 1 is the likeliest."""

    logprob: float
    rank: int
    decoded_token: str

    def __reduce__(self) -> tuple[Any, ...]:  # in a third of the time of the general way
        return Logprob, _fields_of_logprob(self)


@dataclass(frozen=True, slots=True)
class CompletionOutput:
    """One generated continuation.

    ``text`` excludes end-of-sequence tokens and stop strings; ``token_ids`` has every token
    sampled. ``logprobs``: for each token, a mapping from token id, the sampled one first.
    ``finish_reason``: ``stop`` (end of sequence, stop token or string; ``stop_reason`` says which),
    ``length`` (``max_tokens`` or a full context), ``error`` (see :attr:`RequestOutput.error`),
    ``timeout`` (its deadline passed), ``abort``, or None while unfinished.
    """

    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: float | None
    logprobs: list[dict[int, Logprob]] | None
    finish_reason: FinishReason | None
    stop_reason: int | str | None


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """A finished request. ``error`` says why it ended early, None if it did not.

    ``invalid_request``: what it asked for is why, so that it would end so again.

    ``prompt_logprobs``: for each token of the prompt, the first being None since nothing precedes
    it, a mapping from token id, the prompt's own first.
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    finished: bool
    metrics: RequestMetrics = field(default_factory=RequestMetrics)
    error: str | None = None
    prompt_logprobs: list[dict[int, Logprob] | None] | None = None
    invalid_request: bool = False


@dataclass(frozen=True, slots=True)
class StreamChunk:
    """New text of a streamed answer, always whole characters.

    The last chunk of each choice has its ``finish_reason`` and ``stop_reason``. While a long prompt
    is read, each pass gives a chunk without text or tokens. ``logprobs``: one mapping for each of
    ``token_ids``, as in :class:`CompletionOutput`.
    """

    text: str
    token_ids: list[int]
    logprobs: list[dict[int, Logprob]] | None = None
    finish_reason: FinishReason | None = None
    metrics: RequestMetrics | None = None
    index: int = 0  # which of several choices
    stop_reason: int | str | None = None

    def __reduce__(self) -> tuple[Any, ...]:  # in a third of the time of the general way
        return StreamChunk, _fields_of_chunk(self)


_fields_of_chunk = attrgetter(*StreamChunk.__match_args__)
_fields_of_logprob = attrgetter(*Logprob.__match_args__)
