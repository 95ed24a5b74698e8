"""The engine: requests in, tokens out, one step at a time."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from farthing.engine.block_pool import BlockPool
from farthing.engine.request import Request
from farthing.engine.runner import Draw, Runner
from farthing.engine.scheduler import ScheduledRows, Scheduler, blocks_needed
from farthing.errors import ContextLengthError, InvalidParameterError
from farthing.sampling.grammar.compiler import GrammarCompiler
from farthing.sampling.params import SamplingParams
from farthing.sampling.request_sampler import RequestSampler
from farthing.sampling.sampler import NOTHING_ALLOWED, TokenLogprob
from farthing.sampling.vocabulary import SamplingVocabulary


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """A request got a token, or log probabilities of its prompt, or ended by a ``problem``."""

    request: Request
    token: int | None
    logprobs: list[TokenLogprob] | None = None
    prompt_logprobs: Sequence[list[TokenLogprob]] = ()
    problem: str | None = None


class Engine:
    """Generates for any number of requests that share one model and one KV cache.

    Not safe to call from two threads at once; its owner serializes calls.
    """

    def __init__(
        self,
        runner: Runner,
        *,
        max_model_len: int,
        max_num_seqs: int,
        vocabulary: SamplingVocabulary,
        grammars: GrammarCompiler,
        eos_token_ids: Sequence[int],
        use_cache: bool = True,
    ) -> None:
        self.runner = runner
        self.max_model_len = max_model_len
        self.vocabulary = vocabulary
        self.eos_token_ids = frozenset(eos_token_ids)
        self.pool = BlockPool(runner.kv.num_blocks)
        self.scheduler = Scheduler(
            self.pool,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=runner.executor.max_rows,
            use_cache=use_cache,
        )
        self.grammars = grammars
        self._ids = itertools.count()

    @property
    def has_work(self) -> bool:
        """True while any request is unfinished."""
        return self.scheduler.has_work

    def make_request(self, prompt_token_ids: Sequence[int], params: SamplingParams) -> Request:
        """Checks a prompt and makes a request of it, not yet queued.

        Raises :class:`InvalidParameterError` for an empty prompt and for parameters that name what
        the vocabulary does not have or a grammar that is too complex for it,
        :class:`ContextLengthError` for a prompt that leaves no room to generate.
        """
        length = len(prompt_token_ids)
        if length == 0:
            raise InvalidParameterError("prompt: it has no tokens, at least one is needed")
        room = self.max_model_len - length
        if room < 1:
            raise ContextLengthError(
                f"prompt of {length} tokens does not fit the context of {self.max_model_len} "
                "tokens with one left to generate"
            )
        stop_ids = frozenset(params.stop_token_ids or ())
        end_ids = {token for token in stop_ids | self.eos_token_ids if token < self.vocabulary.size}
        seed = secrets.randbits(64) if params.seed is None else params.seed
        request = Request(
            request_id=str(next(self._ids)),
            prompt_token_ids=tuple(prompt_token_ids),
            params=params,
            stop_token_ids=stop_ids if params.ignore_eos else stop_ids | self.eos_token_ids,
            max_tokens=room if params.max_tokens is None else min(params.max_tokens, room),
            seed=seed,
        )
        if (needed := blocks_needed(request)) > self.pool.num_blocks:
            raise ContextLengthError(
                f"prompt of {length} tokens with {request.max_tokens} to generate needs {needed} "
                f"KV blocks, the cache has {self.pool.num_blocks}"
            )
        request.sampler = RequestSampler(params, seed, prompt_token_ids, end_ids, self.vocabulary)
        if params.structured_outputs is not None:
            request.grammar = self.grammars.matcher(
                params.structured_outputs, ignore_eos=params.ignore_eos
            )
        return request

    def add_request(self, request: Request) -> None:
        """Queues a request."""
        self.scheduler.add(request)

    def step(self, now: float) -> list[TokenEvent]:
        """Runs one pass and returns what each request that got a token now has.

        ``now``: seconds of the caller's monotonic clock.
        """
        schedule = self.scheduler.schedule(now)
        if not schedule:
            return []
        draws = self.runner.run(schedule)
        events = []
        for rows in schedule:
            draw = draws.get(rows.request.request_id)
            if draw is None:
                self.scheduler.update(rows, None)
            elif draw.token is not None and draw.token < 0:
                self.scheduler.finish(rows.request, "error")
                events.append(TokenEvent(rows.request, None, problem=_problem(draw)))
            else:
                events.append(self._accept(rows, draw))
        return events

    def _accept(self, rows: ScheduledRows, draw: Draw) -> TokenEvent:
        """Records what the logits of ``rows`` gave."""
        request, grammar = rows.request, rows.request.grammar
        if grammar is not None and draw.token is not None:
            grammar.accept(draw.token)
            if grammar.error is not None:
                self.scheduler.finish(request, "error")
                return TokenEvent(request, None, problem=_problem(draw))
        self.scheduler.update(rows, draw.token)
        if grammar is not None and grammar.finished:
            self.scheduler.finish(request, "stop")
            request.finish_reason = "stop"  # also when the same token was the last allowed
        request.num_prompt_logprobs += len(draw.prompt_logprobs)
        return TokenEvent(request, draw.token, draw.logprobs, draw.prompt_logprobs)

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
        """Ends a request in any state and returns its blocks. Twice is once."""
        self.scheduler.finish(request, "abort")


def _problem(draw: Draw) -> str:
    request = draw.request
    if request.grammar is not None and request.grammar.error is not None:
        return (
            f"request {request.request_id}: structured_outputs, after "
            f"{len(request.output_token_ids)} tokens: {request.grammar.error}"
        )
    if draw.token == NOTHING_ALLOWED:
        return (
            f"request {request.request_id}: no token is allowed after {request.num_tokens} tokens; "
            "what its parameters forbid leaves none"
            + ("" if request.grammar is None else " of those its grammar asks for")
        )
    return (
        f"request {request.request_id}: the model's logits are not finite after "
        f"{request.num_tokens} tokens; its weights or this prompt overflow"
    )
