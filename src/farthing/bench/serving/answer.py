"""What a streamed answer says and when its tokens came, in vLLM's definitions."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

from farthing.bench.serving.event_stream import events
from farthing.bench.serving.exchange import Exchange, error_message

Backend = Literal["openai", "vllm", "openai-chat"]


@dataclass(slots=True)
class Answer:
    """One request's answer. Times in seconds.

    ``ttft``: from the request's start to the first chunk that has choices. ``itl``: between each
    such chunk and the next. ``latency``: to the last of them. A failed one has what came before.
    """

    started: float  # of time.perf_counter
    error: str = ""  # empty: the answer is whole
    text: str = ""
    ttft: float = 0.0
    itl: list[float] = field(default_factory=list)
    latency: float = 0.0
    prompt_tokens: int | None = None  # as the server counted them, None: it did not
    output_tokens: int | None = None
    chunks: int = 0  # with text

    @property
    def success(self) -> bool:
        """Whether it came whole."""
        return not self.error

    @property
    def ended(self) -> float:
        """When its last token came."""
        return self.started + self.latency


def read_answer(exchange: Exchange, chat: bool) -> Answer:
    """The answer that an exchange which is over has brought. ``chat``: of chat completions."""
    answer = Answer(exchange.started)
    if exchange.problem is not None and exchange.status != 200:
        answer.error = exchange.problem
        return answer
    if not exchange.headers.get("content-type", "").startswith("text/event-stream"):
        answer.error = exchange.problem or "the response is no event stream"
        return answer
    times: list[float] = []
    texts: dict[int, list[str]] = {}  # of each choice
    ended = finished = False
    for number, (time, data) in enumerate(events(exchange.reads)):
        if data.strip() == b"[DONE]":
            ended = True
            break
        try:
            chunk = json.loads(data)
        except (ValueError, RecursionError) as error:
            answer.error = f"event {number} of the stream is not JSON: {error}"
            break
        if not isinstance(chunk, dict):
            answer.error = f"event {number} of the stream is no object"
            break
        message = error_message(chunk)
        if message is not None:
            answer.error = f"error in the stream: {message}"
            break
        _read_usage(chunk.get("usage"), answer)
        choices = chunk.get("choices")
        if not choices:
            continue
        times.append(time)
        try:
            for choice in choices:
                text = _text(choice, chat)
                finished = finished or choice.get("finish_reason") is not None
                if text:
                    answer.chunks += 1
                    texts.setdefault(int(choice.get("index") or 0), []).append(text)
        except (AttributeError, KeyError, TypeError, ValueError):
            answer.error = f"event {number} of the stream has other choices than the API's"
            break
    answer.text = "".join(["".join(texts[index]) for index in sorted(texts)])
    if times:
        answer.ttft = times[0] - exchange.started
        answer.itl = [later - earlier for earlier, later in pairwise(times)]
        answer.latency = times[-1] - exchange.started
    if not answer.error:
        answer.error = exchange.error or _what_lacks(bool(times), ended or finished)
    return answer


def _what_lacks(any_chunk: bool, ended: bool) -> str:
    if not any_chunk:
        return "the stream had no chunk with choices"
    return "" if ended else "the stream ended without a finish_reason and without [DONE]"


def _text(choice: dict[str, Any], chat: bool) -> str:
    if not chat:
        return str(choice.get("text") or "")
    delta = choice["delta"]
    return str(delta.get("content") or delta.get("reasoning") or "")


def _read_usage(usage: Any, answer: Answer) -> None:
    match usage:
        case {"prompt_tokens": int(prompt), "completion_tokens": int(output)}:
            answer.prompt_tokens, answer.output_tokens = prompt, output
