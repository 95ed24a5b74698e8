"""One request and how far it has come."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Literal

from farthing.sampling.params import SamplingParams

if TYPE_CHECKING:
    from farthing.sampling.grammar.matcher import GrammarMatcher
    from farthing.sampling.request_sampler import RequestSampler

FinishReason = Literal["stop", "length", "abort", "error"]


class RequestState(Enum):
    """Where a request stands; FINISHED is final."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(slots=True, eq=False)
class Request:
    """A prompt and the sequence that grows from it."""

    # Given at submission.
    request_id: str
    prompt_token_ids: tuple[int, ...]
    params: SamplingParams
    stop_token_ids: frozenset[int]  # end-of-sequence tokens and the request's own
    max_tokens: int  # the request's limit or what the context leaves, whichever is less
    seed: int
    sampler: RequestSampler | None = None  # None: it is only scheduled
    grammar: GrammarMatcher | None = None  # what the output keeps to; follows each token

    # Advanced by the scheduler.
    state: RequestState = RequestState.WAITING
    admitted_at: float | None = None  # seconds, the caller's clock
    block_table: list[int] = field(default_factory=list)
    num_computed_tokens: int = 0  # tokens whose k and v are in the cache
    num_prompt_logprobs: int = 0  # tokens of the prompt whose log probabilities are known
    output_token_ids: list[int] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None  # the token or string that ended it

    @property
    def num_tokens(self) -> int:
        """Prompt and output tokens so far."""
        return len(self.prompt_token_ids) + len(self.output_token_ids)

    @property
    def wanted_prompt_logprobs(self) -> int:
        """Tokens of the prompt whose log probabilities are still to be found."""
        if self.params.prompt_logprobs is None:
            return 0
        return len(self.prompt_token_ids) - 1 - self.num_prompt_logprobs  # the first has none

    @property
    def finished(self) -> bool:
        """True once no more tokens will come."""
        return self.state is RequestState.FINISHED

    def tokens(self, start: int, stop: int) -> list[int]:
        """Tokens at positions ``start .. stop - 1``."""
        prompt = len(self.prompt_token_ids)
        return [
            *self.prompt_token_ids[start:stop],
            *self.output_token_ids[max(start - prompt, 0) : max(stop - prompt, 0)],
        ]
