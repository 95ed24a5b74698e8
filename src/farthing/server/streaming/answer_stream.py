"""From chunks of the engine to the events of a stream.

What the events of a choice have in common is made once, as bytes; of a token only its text is
written, between them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from farthing.engine.outputs import StreamChunk
from farthing.openai_protocol.chat import ChatRequest
from farthing.openai_protocol.completions import CompletionRequest
from farthing.openai_protocol.endpoints import Job
from farthing.openai_protocol.errors import RequestError
from farthing.openai_protocol.logprobs import (
    Entries,
    TextOffsets,
    chat_logprobs,
    completion_logprobs,
)
from farthing.openai_protocol.responses import echoed, failure_of, usage_of
from farthing.server.streaming.events import DONE, quoted


class AnswerStream:
    """The events of one request, whatever it has of prompts and choices.

    Each choice begins with its role, or with its prompt where that is echoed; its texts follow,
    then its finish reason. ``failure`` is set when a choice has ended in what is no answer:
    nothing but an error may follow. Chunks without text are events only where they tell something
    else that was asked for.

    ``prompt_logprobs``: of the prompt of a number, whole when a choice of it begins; needed where
    the prompt is echoed with log probabilities.
    """

    def __init__(self, job: Job, prompt_logprobs: Callable[[int], Entries] = lambda _: ()) -> None:
        options = job.request.stream_options
        self.failure: RequestError | None = None
        self._job = job
        self._usage_at_end = options is not None and options.include_usage
        self._usage_always = options is not None and options.continuous_usage_stats
        self._token_ids = bool(job.request.return_token_ids)
        self._prompt_tokens = sum(map(len, job.prompts))
        self._completion_tokens = 0
        self._cached_tokens = 0
        self._head = _head(job)
        self._shape = _shape(job, self._head, prompt_logprobs)
        self._tail = b',"usage":null}\n\n' if self._usage_at_end else b"}\n\n"
        self._plain_end = b',"logprobs":null,"finish_reason":null}]' + self._tail
        self._detailed = job.params.logprobs is not None or self._token_ids or self._usage_always
        count = len(job.prompts) * job.params.n
        self._choices = [self._shape.choice(index) for index in range(count)]
        self._unfinished = count

    def opens(self, prompt: int) -> bool:
        """Whether the next events of a prompt may be as many times as long as the prompt is."""
        first = prompt * self._job.params.n
        if self._job.params.prompt_logprobs is None:
            return False
        return not all(c.begun for c in self._choices[first : first + self._job.params.n])

    @property
    def complete(self) -> bool:
        """Whether every choice has ended; :meth:`end` is then all that is left."""
        return self._unfinished == 0

    def take(self, prompt: int, chunks: Sequence[StreamChunk]) -> bytes:
        """Events of new ``chunks`` of the prompt of that number, perhaps none."""
        first = prompt * self._job.params.n
        events: list[bytes] = []
        for chunk in chunks:
            self._take_one(self._choices[first + chunk.index], prompt, chunk, events)
            if self.failure is not None:
                break
        return events[0] if len(events) == 1 else b"".join(events)

    def _take_one(
        self, choice: _Choice, prompt: int, chunk: StreamChunk, events: list[bytes]
    ) -> None:
        reason = chunk.finish_reason
        if not chunk.token_ids and not chunk.text and reason is None:
            return  # a part of the prompt was read
        if reason is not None:
            self.failure = failure_of(reason, self._job.served.request_timeout)
        if not choice.begun and (chunk.token_ids or chunk.text or self.failure is None):
            choice.begun = True
            events += self._shape.opening(choice, prompt, self._with_usage())
        if not self._shape.only_prompt:
            self._completion_tokens += len(chunk.token_ids)
            if self._detailed and chunk.token_ids:
                events.append(self._detailed_event(choice, chunk))
            elif chunk.text:
                events.append(
                    choice.prefix + quoted(chunk.text) + self._shape.after + self._plain_end
                )
        if reason is None:
            return
        if chunk.metrics is not None and chunk.index == 0:
            self._cached_tokens += chunk.metrics.cached_tokens
        if self.failure is None:
            self._unfinished -= 1
            events.append(self._finish(choice, chunk))

    def _detailed_event(self, choice: _Choice, chunk: StreamChunk) -> bytes:
        logprobs = self._shape.logprobs(choice, chunk)
        ids = b',"token_ids":' + _compact(chunk.token_ids) if self._token_ids else b""
        return b"".join(
            (
                choice.prefix,
                quoted(chunk.text),
                self._shape.after,
                b',"logprobs":',
                _compact(logprobs),
                b',"finish_reason":null',
                ids,
                b"}]",
                self._with_usage(),
            )
        )

    def _finish(self, choice: _Choice, chunk: StreamChunk) -> bytes:
        if self._shape.only_prompt:
            reason, stop = "length", None
        else:
            reason, stop = str(chunk.finish_reason), chunk.stop_reason
        end = {"logprobs": None, "finish_reason": reason, "stop_reason": stop}
        return choice.finish + _compact(end)[1:] + b"]" + self._with_usage()

    def _with_usage(self) -> bytes:
        """The end of an event, behind its choices."""
        if not self._usage_always:
            return self._tail
        counts = usage_of(self._prompt_tokens, self._completion_tokens, 0)
        del counts["prompt_tokens_details"], counts["completion_tokens_details"]  # told at the end
        return b',"usage":' + _compact(counts) + b"}\n\n"

    def end(self) -> bytes:
        """What follows the last choice's end: the usage if it is asked for, and the last event."""
        if not self._usage_at_end:
            return DONE
        counts = usage_of(self._prompt_tokens, self._completion_tokens, self._cached_tokens)
        return self._head + b',"choices":[],"usage":' + _compact(counts) + b"}\n\n" + DONE


class _Choice:
    """Bytes of a choice's events up to its text, and up to its end."""

    __slots__ = ("begun", "finish", "offsets", "prefix")

    def __init__(self, prefix: bytes, finish: bytes) -> None:
        self.prefix = prefix
        self.finish = finish
        self.begun = False
        self.offsets = TextOffsets()


class _ChatShape:
    """Events of ``chat.completion.chunk``."""

    after = b"}"
    only_prompt = False

    def __init__(self, job: Job, request: ChatRequest, head: bytes) -> None:
        self._job = job
        self._request = request
        self._head = head

    def choice(self, index: int) -> _Choice:
        begin = self._head + b',"choices":[{"index":%d,"delta":{' % index
        return _Choice(begin + b'"content":', begin + b"},")

    def opening(self, choice: _Choice, prompt: int, end: bytes) -> list[bytes]:
        begin = choice.prefix.removesuffix(b'"content":')
        ids = b""
        if self._request.return_token_ids:
            ids = b',"prompt_token_ids":' + _compact(self._job.prompts[prompt])
        return [
            begin
            + b'"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]'
            + ids
            + end
        ]

    def logprobs(self, choice: _Choice, chunk: StreamChunk) -> dict[str, Any] | None:
        if chunk.logprobs is None:
            return None
        return chat_logprobs(
            chunk.logprobs,
            self._request.top_logprobs or 0,
            self._job.served.encoder.tokenizer,
            as_ids=bool(self._request.return_tokens_as_token_ids),
        )


class _CompletionShape:
    """Events of ``text_completion``."""

    after = b""

    def __init__(
        self,
        job: Job,
        request: CompletionRequest,
        head: bytes,
        prompt_logprobs: Callable[[int], Entries],
    ) -> None:
        self._job = job
        self._request = request
        self._head = head
        self._prompt_logprobs = prompt_logprobs
        self.only_prompt = request.only_echo

    def choice(self, index: int) -> _Choice:
        begin = self._head + b',"choices":[{"index":%d,"text":' % index
        return _Choice(begin, begin + b'"",')

    def opening(self, choice: _Choice, prompt: int, end: bytes) -> list[bytes]:
        request = self._request
        if not (request.echo or request.return_token_ids):
            return []
        text, ids, logprobs = "", b"", None
        if request.echo:
            text = echoed(self._job.texts[prompt], self._job.served.encoder.tokenizer)
            if request.logprobs is not None:
                logprobs = self._of(
                    choice, self._job.prompts[prompt], self._prompt_logprobs(prompt)
                )
        if request.return_token_ids:
            prompt_ids = _compact(self._job.prompts[prompt])
            ids = b',"token_ids":[],"prompt_token_ids":' + prompt_ids
        rest = b',"logprobs":' + _compact(logprobs) + b',"finish_reason":null' + ids
        return [choice.prefix + quoted(text) + rest + b"}]" + end]

    def logprobs(self, choice: _Choice, chunk: StreamChunk) -> dict[str, Any] | None:
        if chunk.logprobs is None:
            return None
        return self._of(choice, chunk.token_ids, chunk.logprobs)

    def _of(self, choice: _Choice, token_ids: Sequence[int], entries: Entries) -> dict[str, Any]:
        return completion_logprobs(
            token_ids,
            entries,
            self._request.logprobs or 0,
            self._job.served.encoder.tokenizer,
            as_ids=bool(self._request.return_tokens_as_token_ids),
            offsets=choice.offsets,
        )


def _shape(
    job: Job, head: bytes, prompt_logprobs: Callable[[int], Entries]
) -> _ChatShape | _CompletionShape:
    request = job.request
    if isinstance(request, ChatRequest):
        return _ChatShape(job, request, head)
    return _CompletionShape(job, request, head, prompt_logprobs)


def _head(job: Job) -> bytes:
    """What all events begin with, an open object."""
    is_chat = isinstance(job.request, ChatRequest)
    common = {
        "id": job.response_id,
        "object": "chat.completion.chunk" if is_chat else "text_completion",
        "created": job.created,
        "model": job.model,
        "system_fingerprint": job.served.system_fingerprint,
    }
    return b"data: " + _compact(common).removesuffix(b"}")


def _compact(value: object) -> bytes:
    """JSON of ``value``, all of it ASCII."""
    return json.dumps(value, separators=(",", ":")).encode()
