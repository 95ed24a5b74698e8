"""Follows requests from token events to text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from farthing.engine.engine import TokenEvent
from farthing.engine.metrics import metrics_of, together
from farthing.engine.outputs import CompletionOutput, Logprob, RequestOutput, StreamChunk
from farthing.engine.request import Request
from farthing.errors import InvalidParameterError
from farthing.sampling.sampler import TokenLogprob
from farthing.tokenization.detokenizer import IncrementalDetokenizer
from farthing.tokenization.stop import StopStrings
from farthing.tokenization.tokenizer import Tokenizer


class OutputProcessor:
    """Text of one choice: whole characters only, nothing of a stop string."""

    def __init__(self, request: Request, prompt: str | None, tokenizer: Tokenizer) -> None:
        params = request.params
        self.request = request
        self.prompt = prompt
        self.logprobs: list[dict[int, Logprob]] | None = None if params.logprobs is None else []
        self.prompt_logprobs: list[dict[int, Logprob] | None] | None = (
            None if params.prompt_logprobs is None else [None]
        )
        self.error: Exception | None = None  # why the request ended with ``error``
        self._tokenizer = tokenizer
        self._detokenizer = IncrementalDetokenizer(
            tokenizer, params.skip_special_tokens, continuation=True
        )
        self._stops = StopStrings(
            params.stop_strings, include_stop=params.include_stop_str_in_output
        )
        self._text: list[str] = []
        self._pending: list[StreamChunk] = []
        self._end_taken = False

    def process(self, event: TokenEvent) -> str | None:
        """Takes one event; returns the stop string that the text has reached, if any."""
        if self.prompt_logprobs is not None:
            self.prompt_logprobs += [self._by_token(entries) for entries in event.prompt_logprobs]
        if event.problem is not None:
            self.error = event.problem
        if event.token is None:
            if self.request.finish_reason == "timeout":
                self._emit(self._detokenizer.flush(), [], None)
            return None
        logprobs = None
        if self.logprobs is not None and event.logprobs is not None:
            logprobs = [self._by_token(event.logprobs)]
            self.logprobs += logprobs
        ended = self.request.finish_reason
        by_token = ended == "stop" and event.token in self.request.stop_token_ids
        text = "" if by_token else self._detokenizer.push(event.token)
        if ended is not None:
            text += self._detokenizer.flush()
        return self._emit(text, [event.token], logprobs)

    def _emit(
        self, text: str, tokens: list[int], logprobs: list[dict[int, Logprob]] | None
    ) -> str | None:
        """Passes on what of ``text`` is no stop string; returns one that it has reached."""
        held_off = len(self.request.output_token_ids) <= self.request.params.min_tokens
        emit = text if held_off else self._stops.push(text).text
        if self.request.finish_reason is not None:
            emit += self._stops.flush().text
        self._text.append(emit)
        self._pending.append(StreamChunk(emit, tokens, logprobs, index=self.request.choice))
        return self._stops.matched

    def take(self) -> list[StreamChunk]:
        """Chunks since the last call; the last of a finished request carries its end, once.

        Raises the request's error, if it ended with one.
        """
        if self.error is not None:
            raise self.error
        pending, self._pending = self._pending, []
        if self.request.finished and not self._end_taken:
            self._end_taken = True
            index = self.request.choice
            tail = pending.pop() if pending else StreamChunk("", [], index=index)
            pending.append(
                replace(
                    tail,
                    finish_reason=self.request.finish_reason,
                    stop_reason=self.request.stop_reason,
                    metrics=metrics_of(self.request),
                )
            )
        return pending

    def take_prompt_logprobs(self) -> list[dict[int, Logprob] | None]:
        """Log probabilities of the prompt's tokens since the last call; the rest has none of them.

        For who wants them piece by piece.
        """
        if not self.prompt_logprobs:
            return []
        taken, self.prompt_logprobs = self.prompt_logprobs, []
        return taken

    def completion(self) -> CompletionOutput:
        """The whole choice so far."""
        request = self.request
        cumulative = None
        if self.logprobs is not None:
            cumulative = sum(next(iter(entry.values())).logprob for entry in self.logprobs)
        return CompletionOutput(
            index=request.choice,
            text="".join(self._text),
            token_ids=list(request.output_token_ids),
            cumulative_logprob=cumulative,
            logprobs=self.logprobs,
            finish_reason=request.finish_reason,
            stop_reason=request.stop_reason,
        )

    def _by_token(self, entries: Sequence[TokenLogprob]) -> dict[int, Logprob]:
        return {entry.token_id: self._logprob(entry) for entry in entries}

    def _logprob(self, entry: TokenLogprob) -> Logprob:
        text = self._tokenizer.decode([entry.token_id], skip_special=False)
        return Logprob(entry.logprob, entry.rank, text)


def request_output(choices: Sequence[OutputProcessor]) -> RequestOutput:
    """The whole result of a prompt so far, from its choices in order."""
    first = choices[0]
    request = first.request
    errors = [processor.error for processor in choices if processor.error is not None]
    return RequestOutput(
        request_id=request.request_id,
        prompt=first.prompt,
        prompt_token_ids=list(request.prompt_token_ids),
        outputs=[processor.completion() for processor in choices],
        finished=all(processor.request.finished for processor in choices),
        metrics=together([metrics_of(processor.request) for processor in choices]),
        error=str(errors[0]) if errors else None,
        invalid_request=bool(errors) and isinstance(errors[0], InvalidParameterError),
        prompt_logprobs=first.prompt_logprobs,
    )
