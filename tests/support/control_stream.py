"""A stream that runs beside something bad, and must not notice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from support.event_streams import answer_of
from support.reachable import COMPLETIONS, Reachable, Streaming

BODY = {
    "prompt": "A control that nobody disturbs 🌾",
    "temperature": 1.0,
    "seed": 99,
    "ignore_eos": True,
    "logprobs": 1,
    "stream_options": {"include_usage": True},
}


def _told(raw: bytes) -> dict[str, Any]:
    answer = answer_of(raw)
    del answer["id"], answer["usage"]["prompt_tokens_details"]
    return answer


@contextmanager
def control_stream(served: Reachable, max_tokens: int = 150) -> Iterator[None]:
    """Streams beside the block; its tokens and log probabilities must be those of a run alone."""
    body = {**BODY, "max_tokens": max_tokens}
    alone = _told(served.stream(COMPLETIONS, body))
    stream = Streaming(served, COMPLETIONS, body)
    assert stream.piece()
    try:
        yield
        assert _told(stream.rest()) == alone
    finally:
        stream.leave()
