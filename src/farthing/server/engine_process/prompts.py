"""The prompts that the server waits for, from a message to the last of their answers."""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from farthing.engine.engine import Engine, TokenEvent
from farthing.engine.output_processor import OutputProcessor, request_output
from farthing.engine.outputs import Logprob, RequestOutput, StreamChunk
from farthing.engine.request import Request
from farthing.errors import FarthingError, InvalidParameterError
from farthing.llm_arguments import check_request
from farthing.openai_protocol.errors import RequestError, request_error
from farthing.server.seam.messages import Submit
from farthing.tokenization.tokenizer import Tokenizer

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Prompt:
    key: int
    stream: bool
    choices: list[OutputProcessor]
    problem: Exception | None = None  # of the first choice that failed

    @property
    def finished(self) -> bool:
        return all(processor.request.finished for processor in self.choices)

    def progress(self, request: Request) -> tuple[int, int, int, int, bool]:
        """Of one of its choices; see :class:`Stepped`."""
        ended, stored = request.finished, request.num_prompt_tokens
        if not ended:
            stored = min(request.num_computed_tokens, stored)
        return self.key, request.choice, stored, len(request.output_token_ids), ended


@dataclass(slots=True)
class News:
    """What a step did for those who wait; see :class:`Stepped`."""

    decode_rows: int
    prefill_rows: int
    begun: list[tuple[int, int]]
    progress: list[tuple[int, int, int, int, bool]] = field(default_factory=list)
    chunks: list[tuple[int, StreamChunk]] = field(default_factory=list)
    outputs: list[tuple[int, RequestOutput]] = field(default_factory=list)
    failures: list[tuple[int, RequestError]] = field(default_factory=list)
    prompt_logprobs: list[tuple[int, list[dict[int, Logprob] | None]]] = field(default_factory=list)


class OpenPrompts:
    """Prompts in the engine, and those that came and are not there yet.

    ``clock``: seconds, the engine's.
    """

    def __init__(self, engine: Engine, tokenizer: Tokenizer, clock: Callable[[], float]) -> None:
        self._engine = engine
        self._tokenizer = tokenizer
        self._clock = clock
        self._arrived: dict[int, tuple[Submit, float]] = {}  # not in the engine yet
        self._prompts: dict[int, _Prompt] = {}
        self._choices: dict[str, tuple[_Prompt, OutputProcessor]] = {}  # by request id

    def __len__(self) -> int:
        """Prompts that somebody waits for."""
        return len(self._arrived) + len(self._prompts)

    @property
    def has_arrivals(self) -> bool:
        """Whether :meth:`queue_next` has anything to do."""
        return bool(self._arrived)

    def arrive(self, submit: Submit) -> None:
        """Takes note of a prompt; its time runs from now."""
        self._arrived[submit.key] = submit, self._clock()

    def queue_next(self) -> tuple[int, RequestError | None]:
        """Queues the prompt that has waited longest: its key, and why it is refused if it is."""
        key = next(iter(self._arrived))
        submit, arrived = self._arrived.pop(key)
        try:
            requests = self._make(submit, arrived)
            choices = [OutputProcessor(request, None, self._tokenizer) for request in requests]
        except Exception as error:  # its owner hears of it; the others go on
            if not isinstance(error, FarthingError):
                _log.exception("a prompt could not be prepared")
            return key, request_error(error)
        prompt = self._prompts[key] = _Prompt(key, submit.stream, choices)
        for processor in choices:
            self._choices[processor.request.request_id] = prompt, processor
        self._engine.add_request(requests[0], arrived)
        return key, None

    def _make(self, submit: Submit, arrived: float) -> list[Request]:
        params = submit.params
        check_request(
            {
                "user": submit.user,
                "priority": submit.priority,
                "cache_salt": submit.cache_salt,
                "timeout": submit.timeout,
            }
        )
        _check_ids(submit.prompt_token_ids, self._engine.vocabulary.size)
        return self._engine.make_request(
            tuple(submit.prompt_token_ids),  # which all choices share
            params,
            user=submit.user,
            priority=submit.priority,
            cache_salt=submit.cache_salt,
            deadline=None if submit.timeout is None else arrived + submit.timeout,
        )

    def abort(self, key: int) -> None:
        """Ends a prompt, wherever it is; one that has ended already is no matter."""
        self._arrived.pop(key, None)
        prompt = self._prompts.get(key)
        if prompt is not None:
            self._close(prompt)

    def abort_all(self) -> None:
        """Ends all of them."""
        self._arrived.clear()
        for prompt in list(self._prompts.values()):
            self._close(prompt)

    def _close(self, prompt: _Prompt) -> None:
        del self._prompts[prompt.key]
        for processor in prompt.choices:
            del self._choices[processor.request.request_id]
            self._engine.abort(processor.request)

    def check_integrity(self) -> None:
        """Asserts that no choice is kept but those of open prompts."""
        prompts = self._prompts.values()
        choices = {p.request.request_id: (prompt, p) for prompt in prompts for p in prompt.choices}
        assert self._choices == choices, "choices are kept of prompts that are not open"
        assert not self._arrived.keys() & self._prompts.keys(), "a prompt is queued twice"

    def follow(self, events: Sequence[TokenEvent], started: float, ended: float) -> News:
        """Takes what a step from ``started`` to ``ended`` gave, and enters it in the metrics.

        Costs what the step touched, however many wait.
        """
        schedule = self._engine.last_schedule
        begun = self._begun()
        there: dict[str, tuple[_Prompt, OutputProcessor]] = {}
        touched: dict[str, tuple[_Prompt, OutputProcessor]] = {}
        for event in events:
            found = self._choices.get(event.request.request_id)
            if found is not None:
                touched[event.request.request_id] = found
                self._process(*found, event)
        news = News(*self._engine.record(events, started, ended), begun=begun)
        for rows in schedule.rows:
            if found := self._choices.get(rows.request.request_id):
                there[rows.request.request_id] = found
        there |= touched
        for prompt, processor in touched.values():
            if prompt.stream and prompt.problem is None:
                news.chunks += [(prompt.key, chunk) for chunk in processor.take()]
            if logprobs := processor.take_prompt_logprobs():
                news.prompt_logprobs.append((prompt.key, logprobs))
        for prompt in {prompt.key: prompt for prompt, _ in there.values()}.values():
            self._end_if_over(prompt, news)
        news.progress += [prompt.progress(found.request) for prompt, found in there.values()]
        return news

    def _begun(self) -> list[tuple[int, int]]:
        """Key and number of the choices that run for the first time."""
        begun = [(self._choices.get(r.request_id), r) for r in self._engine.scheduler.begun]
        return [(found[0].key, request.choice) for found, request in begun if found]

    def _process(self, prompt: _Prompt, processor: OutputProcessor, event: TokenEvent) -> None:
        try:
            if stop := processor.process(event):
                self._engine.stop(event.request, stop)
        except Exception as error:  # its owner hears of it; its neighbours go on
            _log.exception("an answer could not be processed")
            processor.error = error
            self._engine.fail(event.request)
        if processor.error is not None and prompt.problem is None:
            prompt.problem = processor.error

    def _end_if_over(self, prompt: _Prompt, news: News) -> None:
        if prompt.problem is not None:
            news.failures.append((prompt.key, request_error(prompt.problem)))
        elif not prompt.finished:
            return
        elif not prompt.stream:
            # The server has the prompt's ids; for a long one they take as long as a small pass.
            whole = replace(request_output(prompt.choices), prompt_token_ids=[])
            news.outputs.append((prompt.key, whole))
        self._close(prompt)


def _check_ids(ids: array[int], vocab_size: int) -> None:
    """Raises :class:`InvalidParameterError` for an id that the model does not have."""
    if len(ids) == 0:
        return  # the engine says it better
    given = np.frombuffer(ids, ids.typecode)
    for token in (int(given.min()), int(given.max())):
        if not 0 <= token < vocab_size:
            raise InvalidParameterError(
                f"prompt: token id {token} must be from 0 below {vocab_size}"
            )
