"""A server of the OpenAI API whose every answer a test decides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from farthing.tokenization import Tokenizer
from support.scripted_server import (
    Received,
    ScriptedServer,
    Step,
    completion_events,
    event,
    response,
    streamed,
)

Answer = Callable[[Received, int], Iterable[Step]]
"""Steps for a request; the number says how often it has been asked before."""


def words_of(request: Received) -> list[str]:
    """What the server says if the test does not: as many words as were asked for."""
    body = request.json
    most = body.get("max_tokens") or body.get("max_completion_tokens")
    return [f" {word}{n}" for n, word in zip(range(most), ["Wort", "🌾"] * most, strict=False)]


def plain(request: Received, asked: int) -> list[Step]:
    """Answers at once, counting a token for each character of a prompt."""
    words = words_of(request)
    if request.path.endswith("/chat/completions"):
        return streamed(
            chat_events(words, (len(request.json["messages"][0]["content"]), len(words)))
        )
    return streamed(completion_events(words, (len(request.json["prompt"]), len(words))))


def chat_events(words: Iterable[str], usage: tuple[int, int]) -> list[bytes]:
    """The events of a conversation's answer."""
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": word} for word in words]
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": "length"})
    counts = {
        "prompt_tokens": usage[0],
        "completion_tokens": usage[1],
        "total_tokens": sum(usage),
    }
    events = [event({"choices": [choice]}) for choice in choices]
    return [*events, event({"choices": [], "usage": counts}), event("[DONE]")]


class ScriptedApi(ScriptedServer):
    """``/v1/models``, ``/tokenize`` and ``/detokenize`` of ``tokenizer``, ``metrics``, answers.

    ``llama_cpp``: whether tokens are asked for as llama-server has it.
    """

    def __init__(
        self,
        answer: Answer = plain,
        tokenizer: Tokenizer | None = None,
        *,
        metrics: Iterable[str] = (),
        llama_cpp: bool = False,
        port: int = 0,
    ) -> None:
        super().__init__(self._steps, port=port)
        self._answer = answer
        self._tokenizer = tokenizer
        self._metrics = iter(metrics)
        self._text = "content" if llama_cpp else "prompt"
        self._special = "add_special" if llama_cpp else "add_special_tokens"
        self._asked: Counter[bytes] = Counter()

    @property
    def generating(self) -> list[Received]:
        """Requests to generate, in the order in which they came."""
        return [request for request in self.received if request.path.endswith("/completions")]

    def _steps(self, request: Received) -> Iterable[Step]:
        if request.path.endswith("/completions"):
            asked = self._asked[request.body]
            self._asked[request.body] += 1
            return self._answer(request, asked)
        if request.path == "/v1/models":
            return [response({"object": "list", "data": [{"id": "tiny"}, {"id": "other"}]})]
        text = next(self._metrics, None) if request.path == "/metrics" else None
        if text is not None:
            return [response(text.encode(), Content_Type="text/plain")]
        if self._tokenizer is not None and request.path == "/tokenize":
            ids = self._tokenizer.encode(
                request.json[self._text], add_special_tokens=request.json[self._special]
            )
            return [response({"count": len(ids), "tokens": ids})]
        if self._tokenizer is not None and request.path == "/detokenize":
            return [response({self._text: self._tokenizer.decode(request.json["tokens"])})]
        return [response({"error": {"message": "Not Found"}}, "404 Not Found")]
