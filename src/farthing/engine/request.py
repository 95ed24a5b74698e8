"""One request and how far it has come."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Literal

from farthing.sampling.params import SamplingParams

if TYPE_CHECKING:
    from farthing.engine.prefix_cache import CachedBlock
    from farthing.sampling.grammar.matcher import GrammarMatcher
    from farthing.sampling.request_sampler import RequestSampler

FinishReason = Literal["stop", "length", "abort", "timeout", "error"]


class RequestState(Enum):
    """Where a request stands; FINISHED is final. A preempted request waits again."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(slots=True, eq=False)
class Request:
    """A prompt and one sequence that grows from it.

    Several choices of one prompt are several requests: the first is the ``leader`` of the others,
    which share the blocks of its prompt.
    """

    # Given at submission.
    request_id: str
    prompt_token_ids: tuple[int, ...]
    params: SamplingParams
    stop_token_ids: frozenset[int]  # end-of-sequence tokens and the request's own
    max_tokens: int  # the request's limit or what the context leaves, whichever is less
    seed: int
    sampler: RequestSampler | None = None  # None: it is only scheduled
    grammar: GrammarMatcher | None = None  # what the output keeps to; follows each token
    choice: int = 0  # which of several for one prompt; a key of the noise
    leader: Request | None = None
    followers: list[Request] = field(default_factory=list)  # queued when its prompt is stored
    user: str = ""  # whom its service is charged to
    priority: int = 0  # lower is sooner
    salt: bytes = b""  # prefix blocks are shared among requests of equal salt
    deadline: float | None = None  # seconds, the engine's clock: it ends then at the latest

    # Advanced by scheduler and engine.
    state: RequestState = RequestState.WAITING
    arrival: int = -1  # the order in which requests were queued
    arrived_at: float = 0.0  # seconds, the engine's clock
    admitted_at: float | None = None  # when it first ran
    first_token_at: float | None = None
    last_token_at: float | None = None
    ended_at: float | None = None
    num_computed_tokens: int = 0  # tokens whose k and v are in the cache
    num_charged_tokens: int = 0  # tokens that its user has paid for, or that were found cached
    num_cached_tokens: int = 0  # tokens of the prompt that it found in the cache when it first ran
    num_preemptions: int = 0
    num_prompt_logprobs: int = 0  # tokens of the prompt whose log probabilities are known
    output_token_ids: list[int] = field(default_factory=list)
    num_ended_choices: int = 0  # of a leader, itself among them; kept by the metrics
    longest_choice: int = 0  # of those, tokens
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None  # the token or string that ended it

    # Kept by the KV cache's manager.
    block_table: list[int] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)  # of its full blocks, as far as asked for
    chain: list[CachedBlock] = field(default_factory=list)  # its first blocks, in the prefix cache
    published: list[CachedBlock] = field(default_factory=list)  # what it ever put there itself
    shares: bool = False  # whether further full blocks go to the prefix cache

    @property
    def num_prompt_tokens(self) -> int:
        """Tokens of the prompt."""
        return len(self.prompt_token_ids)

    @property
    def num_tokens(self) -> int:
        """Prompt and output tokens so far."""
        return len(self.prompt_token_ids) + len(self.output_token_ids)

    @property
    def num_remaining_tokens(self) -> int:
        """Tokens to compute before the next can be sampled."""
        return self.num_tokens - self.num_computed_tokens

    @property
    def has_stored_prompt(self) -> bool:
        """Whether the cache has the prompt, up to its last token at least."""
        return bool(self.block_table) and self.num_computed_tokens >= self.num_prompt_tokens - 1

    @property
    def most_stored_tokens(self) -> int:
        """Tokens it may ever store: the last that it samples is never stored."""
        return len(self.prompt_token_ids) + self.max_tokens - 1

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
