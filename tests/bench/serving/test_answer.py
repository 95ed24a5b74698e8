"""What is read out of a stream that is over."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from farthing.bench.serving.answer import read_answer
from farthing.bench.serving.exchange import Exchange
from support.scripted_server import completion_events, event


def exchange_of(
    events: Sequence[bytes], *, error: str | None = None, content_type: str = "text/event-stream"
) -> Exchange:
    """An exchange that began at 10 s; the events came at 11, 12, 14, 17, 21, ... s."""
    exchange = Exchange(10.0)
    exchange.status = 200
    exchange.headers = {"content-type": content_type}
    exchange.error = error
    at = 11.0
    for number, each in enumerate(events, 1):
        exchange.reads.append((at, each))
        at += number
    return exchange


def chat_event(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
    return event({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more})


def test_a_completion() -> None:
    answer = read_answer(exchange_of(completion_events(["One", " ünd", " 🌾"], (7, 5))), False)
    assert answer.success
    assert answer.text == "One ünd 🌾"
    assert (answer.ttft, answer.itl, answer.latency) == (1.0, [1.0, 2.0], 4.0)
    assert (answer.prompt_tokens, answer.output_tokens, answer.chunks) == (7, 5, 3)
    assert answer.ended == 14.0


def test_pings_and_the_usage_chunk_are_no_tokens() -> None:
    events = completion_events(["a", "b"], (1, 2))
    answer = read_answer(exchange_of([b": ping\n\n", *events]), False)
    assert (answer.ttft, answer.itl, answer.latency) == (2.0, [2.0], 4.0)


def test_several_events_of_one_read_came_together() -> None:
    joined = b"".join(completion_events(["a", "b", "c"]))
    answer = read_answer(exchange_of([joined]), False)
    assert (answer.ttft, answer.itl, answer.latency) == (1.0, [0.0, 0.0], 1.0)


def test_a_conversation_counts_every_chunk_with_choices() -> None:
    counts = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    events = [
        chat_event({"role": "assistant", "content": ""}),
        chat_event({"reasoning": "hm "}, usage={**counts, "completion_tokens": 1}),
        chat_event({"content": "Yes"}),
        chat_event({}, "stop"),
        event({"choices": [], "usage": counts}),
        event("[DONE]"),
    ]
    answer = read_answer(exchange_of(events), True)
    assert answer.success
    assert (answer.text, answer.chunks) == ("hm Yes", 2)
    assert (answer.ttft, answer.itl, answer.latency) == (1.0, [1.0, 2.0, 3.0], 7.0)
    assert (answer.prompt_tokens, answer.output_tokens) == (3, 2)


def test_choices_are_read_one_by_one() -> None:
    def choices(*pairs: tuple[int, str]) -> bytes:
        return event(
            {"choices": [{"index": i, "text": t, "finish_reason": None} for i, t in pairs]}
        )

    events = [choices((1, "B")), choices((0, "a"), (1, "C")), choices((0, "d")), event("[DONE]")]
    assert read_answer(exchange_of(events), False).text == "adBC"


@pytest.mark.parametrize(
    ("events", "error"),
    [
        ([event({"error": {"message": "engine died"}})], "error in the stream: engine died"),
        ([], "the stream had no chunk with choices"),
        ([event("[DONE]")], "the stream had no chunk with choices"),
        ([event("{")], "event 1 of the stream is not JSON"),
        ([b"data: \xff\n\n"], "event 1 of the stream is not JSON"),
        ([event([1])], "event 1 of the stream is no object"),
        ([event({"choices": [1]})], "event 1 of the stream has other choices"),
    ],
)
def test_what_is_wrong_in_a_stream(events: list[bytes], error: str) -> None:
    first = [event({"choices": [{"index": 0, "text": "a", "finish_reason": None}]})]
    started = first if "no chunk" not in error else []
    answer = read_answer(exchange_of([*started, *events, *first[: len(started)]]), False)
    assert not answer.success
    assert answer.error.startswith(error)
    assert answer.text == ("a" if started else "")


def test_an_end_must_be_one() -> None:
    whole = completion_events(["a", "b"])
    assert read_answer(exchange_of(whole[:-1]), False).success  # a finish_reason is an end too
    cut = read_answer(exchange_of(whole[:1]), False)
    assert cut.error == "the stream ended without a finish_reason and without [DONE]"
    broken = read_answer(exchange_of(whole, error="the connection ended"), False)
    assert broken.error == "the connection ended"
    assert broken.text == "ab"


def test_no_stream_is_no_answer() -> None:
    body = [json.dumps({"choices": [{"text": "a"}]}).encode()]
    answer = read_answer(exchange_of(body, content_type="application/json"), False)
    assert answer.error == "the response is no event stream"
    exchange = exchange_of([b'{"error": {"message": "too long"}}'])
    exchange.status = 400
    assert read_answer(exchange, False).error == "HTTP 400: too long"
