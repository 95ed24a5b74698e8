"""Streams over HTTP: character for character what comes whole, and one end on every path."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from farthing.server.http.limits import HttpLimits
from support.control_stream import control_stream
from support.event_streams import answer_of, data_of, events_of
from support.reachable import CHAT, COMPLETIONS, Streaming, send_request
from support.served import Served, serve

USER = [{"role": "user", "content": "What is a farthing? 🌾"}]
PIECES = [
    "penny",
    " farthing",
    "🌾🍞",
    "über",
    "水は",
    "зима",
    "\u2028",
    "\n",
    "1789",
    "<|im_end|>",
    "e\u0301",
]


def random_request(rng: random.Random) -> tuple[str, dict[str, Any]]:
    """Any request that a stream may answer, its answers odd bytes of a model without sense."""
    text = "".join(rng.choices(PIECES, k=rng.randint(1, 12)))
    body: dict[str, Any] = {
        "temperature": rng.choice([0, 0.7, 1.0, 1.6]),
        "seed": rng.randrange(2**32),
        "max_tokens": rng.randint(1, 40),
        "ignore_eos": rng.random() < 0.7,
        "n": rng.choice([1, 1, 1, 2, 3]),
        "top_p": rng.choice([1.0, 0.9]),
        "skip_special_tokens": rng.random() < 0.8,
        "include_stop_str_in_output": rng.random() < 0.3,
        "min_tokens": rng.choice([0, 0, 0, 1]),
        "return_token_ids": rng.random() < 0.3,
    }
    if rng.random() < 0.5:
        if rng.random() < 0.4:
            body |= {"logprobs": True, "top_logprobs": rng.randint(0, 4)}
        return CHAT, {**body, "messages": [{"role": "user", "content": text}]}
    if rng.random() < 0.3:
        body["echo"] = True
        if body["seed"] % 2:
            body["logprobs"] = body["seed"] % 5
    elif rng.random() < 0.5:
        body["logprobs"] = rng.randint(0, 4)
    prompts = [text, *("".join(rng.choices(PIECES, k=3)) for _ in range(rng.choice([0, 0, 2])))]
    return COMPLETIONS, {**body, "prompt": prompts if len(prompts) > 1 else text}


def texts_of(answer: dict[str, Any]) -> list[str]:
    return [c["message"]["content"] if "message" in c else c["text"] for c in answer["choices"]]


def comparable(answer: dict[str, Any]) -> dict[str, Any]:
    found = {k: v for k, v in answer.items() if k not in ("id", "created")}
    found["usage"] = dict(found["usage"])
    cached = found["usage"].pop("prompt_tokens_details")["cached_tokens"]
    assert 0 <= cached <= found["usage"]["prompt_tokens"]
    return found


def check_random(served: Served, seed: int) -> tuple[bool, bool]:
    """Compares one request both ways; whether a stop string ended it, and whether it had emoji."""
    rng = random.Random(seed)
    path, body = random_request(rng)
    whole = served.answer(path, body)
    text = "".join(texts_of(whole))
    if text and rng.random() < 0.7:  # stop strings that will be met
        starts = [rng.randrange(len(text)) for _ in range(rng.randint(1, 4))]
        body["stop"] = sorted({text[i : i + rng.randint(1, 4)] for i in starts})
        body["stop"] = [s for s in body["stop"] if len(s.encode()) <= 256]
        whole = served.answer(path, body)
    options = {"include_usage": True, "continuous_usage_stats": rng.random() < 0.3}
    raw = served.stream(path, {**body, "stream_options": options})
    assert comparable(answer_of(raw)) == comparable(whole)
    again = served.answer(path, body)
    assert comparable(again) == comparable(whole), "seeds reproduce"
    stopped = any(isinstance(choice["stop_reason"], str) for choice in whole["choices"])
    return stopped, any(ord(c) > 0xFFFF for c in "".join(texts_of(whole)))


def test_streams_are_whole_answers_for_200_random_requests(served: Served) -> None:
    with ThreadPoolExecutor(6) as threads:
        found = list(threads.map(lambda seed: check_random(served, seed), range(200)))
    assert sum(stopped for stopped, _ in found) > 40
    assert sum(emoji for _, emoji in found) > 10


def test_an_echo_with_log_probabilities_comes_first_and_whole(served_model: Path) -> None:
    """Of prompts longer than a pass, of several choices, with and without an answer behind it."""
    long = [1 + i % 200 for i in range(240)]
    with serve(served_model, engine={"max_num_batched_tokens": 32}) as served:
        for fields in (
            {"prompt": [long, [7], long[:40]], "max_tokens": 3, "n": 2, "logprobs": 3},
            {"prompt": "One penny 🌾", "max_tokens": 0, "logprobs": 0},
            {"prompt": "One penny 🌾", "max_tokens": 1, "logprobs": 2, "return_token_ids": True},
        ):
            body = {**fields, "echo": True, "seed": 5, "ignore_eos": True}
            whole = served.answer(COMPLETIONS, body)
            raw = served.stream(COMPLETIONS, {**body, "stream_options": {"include_usage": True}})
            assert comparable(answer_of(raw)) == comparable(whole)
            begun: set[int] = set()
            for part in (part for event in events_of(raw) for part in event["choices"]):
                if part["index"] not in begun:
                    begun.add(part["index"])
                    assert part["logprobs"]["token_logprobs"][0] is None
                    assert part["logprobs"]["text_offset"][0] == 0
            assert begun == {*range(len(whole["choices"]))}
        served.wait_idle()


def test_a_whole_step_is_sent_at_once(served: Served) -> None:
    body = {"prompt": "One", "max_tokens": 20, "ignore_eos": True, "n": 4, "temperature": 1.0}
    stream = Streaming(served, COMPLETIONS, {**body, "stream_options": {"include_usage": True}})
    assert stream.status == 200
    assert stream.headers["content-type"].startswith("text/event-stream")
    assert stream.headers["cache-control"] == "no-cache"
    assert stream.headers["x-accel-buffering"] == "no"
    raw = stream.rest()
    assert len(stream.pieces) <= 21
    assert b"".join(data_piece(p) for p in stream.pieces) == raw
    assert stream.pieces[-1].endswith(b"data: [DONE]\n\n")
    assert answer_of(raw)["usage"]["completion_tokens"] == 80
    stream.leave()


def data_piece(piece: bytes) -> bytes:
    """``piece``, which must be whole events of whole characters."""
    assert data_of(piece)
    return piece


def test_a_failure_after_the_first_byte_is_the_last_event(served: Served) -> None:
    body = {
        "prompt": "One",
        "guided_regex": "a{8}b",
        "logit_bias": {},
        "max_tokens": 30,
        "bad_words": ["b"],
    }
    raw = served.stream(COMPLETIONS, body)
    *events, error = events_of(raw)
    assert set(error) == {"error"}
    assert error["error"]["message"] == (
        "guided_regex, bad_words: no token is allowed as token 9 of the answer"
    )
    assert error["error"]["type"] == "invalid_request_error"
    assert data_of(raw)[-1] == "[DONE]"
    assert "".join(e["choices"][0]["text"] for e in events) == "a" * 8
    (record,) = served.records.all
    assert (record.status, record.outcome) == (200, "failed")
    assert record.error_type == "invalid_request_error"


def test_one_failed_prompt_ends_its_neighbours(served: Served) -> None:
    body = {"prompt": ["One", "Two"], "guided_regex": "a{8}b", "bad_words": ["b"]}
    raw = served.stream(COMPLETIONS, {**body, "max_tokens": 30})
    assert data_of(raw)[-1] == "[DONE]"
    assert [set(event) == {"error"} for event in events_of(raw)].count(True) == 1
    assert served.post(COMPLETIONS, {**body, "max_tokens": 30}).status_code == 400


@pytest.fixture(scope="module")
def hasty(served_model: Path) -> Iterator[Served]:
    """A server that pings often and gives a prompt little time."""
    with serve(
        served_model, ping_interval=0.05, request_timeout=0.4, engine={"max_num_seqs": 1}
    ) as server:
        yield server


def test_silence_is_filled_with_comments_and_time_runs_out(hasty: Served) -> None:
    first = {"prompt": "One", "max_tokens": 250, "ignore_eos": True, "n": 8}
    with ThreadPoolExecutor(1) as threads:
        busy = threads.submit(hasty.post, COMPLETIONS, {**first, "n": 16})
        hasty.wait(lambda: hasty.service.engine.in_flight == 1)
        stream = Streaming(hasty, CHAT, {"messages": USER, "max_tokens": 250, "ignore_eos": True})
        raw = stream.rest()
        whole = busy.result()
    assert raw.count(b": ping\n\n") >= 3
    *_, error = events_of(raw)
    assert error["error"]["code"] == "timeout"
    assert data_of(raw)[-1] == "[DONE]"
    assert whole.status_code == 504
    assert whole.json()["error"]["code"] == "timeout"
    stream.leave()
    hasty.wait_idle()


def test_a_stream_that_is_never_silent_has_no_comments(hasty: Served) -> None:
    raw = hasty.stream(COMPLETIONS, {"prompt": "One", "max_tokens": 3, "ignore_eos": True})
    assert b": ping" not in raw


def test_the_same_counts_both_ways(served: Served) -> None:
    asked = {"messages": [{"role": "user", "content": "counted 🌾 " * 6}], "max_tokens": 9}
    served.answer(CHAT, asked)  # from here on it is cached
    whole = served.answer(CHAT, asked)["usage"]
    raw = served.stream(CHAT, {**asked, "stream_options": {"include_usage": True}})
    assert answer_of(raw)["usage"] == whole
    assert whole["prompt_tokens_details"]["cached_tokens"] >= 16


def test_an_engine_that_dies_ends_its_streams(served_model: Path) -> None:
    with serve(served_model) as server:
        body = {"messages": USER, "max_tokens": 200, "ignore_eos": True}
        streams = [Streaming(server, CHAT, {**body, "seed": i}) for i in range(3)]
        for stream in streams:
            assert stream.piece()
        server._loop.call_soon_threadsafe(server.service.engine.abort_with_trace, "a test")
        for stream in streams:
            raw = stream.rest()
            assert set(events_of(raw)[-1]) == {"error"}
            assert data_of(raw)[-1] == "[DONE]"
            stream.leave()
        response = server.post(CHAT, body)
        assert response.status_code == 503
        assert response.json()["error"]["type"] == "service_unavailable"


def test_who_does_not_read_is_cut_off(served_model: Path) -> None:
    """X4: what waits for him is bounded, and nobody else waits."""
    body = {"messages": USER, "max_tokens": 200, "ignore_eos": True, "n": 16, "logprobs": True}
    body |= {"top_logprobs": 20}  # more than the system has buffers for
    raw = json.dumps({**body, "stream": True}).encode()
    with serve(served_model, limits=HttpLimits(write_timeout=0.5)) as server:
        with control_stream(server), send_request(server, CHAT, raw, receive_buffer=4096):
            server.wait(lambda: any(r.outcome == "left" for r in server.records.all))
        (cut,) = [record for record in server.records.all if record.outcome == "left"]
        assert (cut.status, cut.n) == (200, 16)
        server.wait_idle()


def test_as_many_prompts_as_are_taken(served: Served) -> None:
    body = {"prompt": [[token % 300] for token in range(1024)], "max_tokens": 2, "temperature": 0}
    whole = served.answer(COMPLETIONS, body)
    raw = served.stream(COMPLETIONS, {**body, "stream_options": {"include_usage": True}})
    assert comparable(answer_of(raw)) == comparable(whole)
    assert len(whole["choices"]) == 1024
