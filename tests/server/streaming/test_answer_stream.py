"""Events of a stream, joined, are the answer that comes whole."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from farthing import LLM
from farthing.engine.outputs import RequestOutput, StreamChunk
from farthing.openai_protocol.endpoints import CHAT, COMPLETIONS, Job, job_of, parse_request
from farthing.openai_protocol.names import ModelNames
from farthing.openai_protocol.served_model import ServedModel
from farthing.server.streaming.answer_stream import AnswerStream
from farthing.server.streaming.events import DONE, quoted
from support.event_streams import answer_of, events_of
from support.tiny_models import make_tiny_model

USER = [{"role": "user", "content": "What is a farthing? 🌾"}]
EVERYTHING = {"include_usage": True, "continuous_usage_stats": True}


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    return LLM(make_tiny_model("qwen2", tmp_path_factory.mktemp("tiny")), num_threads=1)


def job_for(llm: LLM, url: str, **body: Any) -> Job:
    served = ServedModel(ModelNames(["tiny"]), llm.encoder, llm.context_length, "fp_x")
    return job_of(parse_request(url, body), served)


def streamed(llm: LLM, job: Job, seed: int = 0) -> tuple[bytes, int]:
    """All bytes of a stream, chunks of its prompts mixed and sometimes late; and the takes."""
    stream = AnswerStream(job)
    order = random.Random(seed)
    sources: dict[int, Iterator[StreamChunk]] = {
        number: llm.stream({"prompt_token_ids": ids}, job.params)
        for number, ids in enumerate(job.prompts)
    }
    sent = b""
    takes = 0
    while sources:
        number = order.choice(list(sources))
        chunks = [c for _ in range(order.randint(1, 3)) if (c := next(sources[number], None))]
        if not chunks:
            del sources[number]
        sent += stream.take(number, chunks)
        takes += 1
    assert stream.complete
    assert stream.failure is None
    return sent + stream.end(), takes


def whole(llm: LLM, job: Job) -> dict[str, Any]:
    found = dict(llm.run((i, ids, job.params) for i, ids in enumerate(job.prompts)))
    outputs = [found[i] for i in range(len(job.prompts))]
    assert all(isinstance(output, RequestOutput) for output in outputs)
    return job.response(outputs)  # type: ignore[arg-type]


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": (CHAT, {}),
    "choices": (CHAT, {"n": 3, "temperature": 1.0}),
    "logprobs": (CHAT, {"logprobs": True, "top_logprobs": 3, "n": 2}),
    "ids as tokens": (CHAT, {"logprobs": True, "return_tokens_as_token_ids": True}),
    "token ids": (CHAT, {"return_token_ids": True}),
    "stop": (CHAT, {"stop": ["e", "\u00fc", "1"], "temperature": 1.5}),
    "stop token": (CHAT, {"stop_token_ids": list(range(100, 330)), "ignore_eos": False}),
    "completion": (COMPLETIONS, {"prompt": "One penny"}),
    "echo": (COMPLETIONS, {"prompt": ["One\u2028penny", "Two"], "echo": True, "n": 2}),
    "only echo": (COMPLETIONS, {"prompt": "One penny", "echo": True, "max_tokens": 0}),
    "echoed ids": (COMPLETIONS, {"prompt": [[5, 6], [7]], "echo": True, "return_token_ids": True}),
    "prompts": (COMPLETIONS, {"prompt": ["One", "Two", "Three"], "logprobs": 2, "n": 2}),
    "completion ids": (COMPLETIONS, {"prompt": "One", "return_token_ids": True}),
}


@pytest.mark.parametrize("options", [None, {"include_usage": True}, EVERYTHING])
@pytest.mark.parametrize("case", CASES)
def test_a_stream_joined_is_the_whole_answer(llm: LLM, case: str, options: Any) -> None:
    url, fields = CASES[case]
    body = {"temperature": 1.2, "seed": 11, "max_tokens": 24, "ignore_eos": True, **fields}
    if url == CHAT:
        body["messages"] = USER
    expected = whole(llm, job_for(llm, url, **body))
    job = job_for(llm, url, **body, stream=True, stream_options=options)
    sent, _ = streamed(llm, job, seed=len(case))
    answer = answer_of(sent)
    assert answer.pop("id") == job.response_id
    del expected["id"], expected["created"]
    cached = expected["usage"].pop("prompt_tokens_details")
    if options is None:
        assert answer.pop("usage") is None
        del expected["usage"]
    else:
        found = answer["usage"].pop("prompt_tokens_details")
        assert found.keys() == cached.keys()
        assert 0 <= found["cached_tokens"] < expected["usage"]["prompt_tokens"]
    assert answer == expected


def test_the_order_of_a_chats_events(llm: LLM) -> None:
    body = {"messages": USER, "max_tokens": 5, "ignore_eos": True, "temperature": 0}
    options = {"include_usage": True}
    sent, _ = streamed(llm, job_for(llm, CHAT, **body, stream=True, stream_options=options))
    assert sent.endswith(DONE)
    events = events_of(sent)
    first, *middle, finish, counts = events
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert all(set(event["choices"][0]["delta"]) == {"content"} for event in middle)
    assert finish["choices"][0]["delta"] == {}
    assert finish["choices"][0]["finish_reason"] == "length"
    assert counts["choices"] == []
    assert counts["usage"]["completion_tokens"] == 5
    assert all(event["usage"] is None for event in events[:-1])
    assert {(e["id"], e["created"], e["model"], e["object"]) for e in events} == {
        (first["id"], first["created"], "tiny", "chat.completion.chunk")
    }


def test_running_usage_grows_to_the_final_one(llm: LLM) -> None:
    body = {"messages": USER, "max_tokens": 6, "ignore_eos": True, "n": 2, "temperature": 1.0}
    job = job_for(llm, CHAT, **body, stream=True, stream_options=EVERYTHING)
    sent, _ = streamed(llm, job)
    counts = [event["usage"] for event in events_of(sent)]
    tokens = [count["completion_tokens"] for count in counts]
    assert tokens == sorted(tokens)
    assert (tokens[0], tokens[-1]) == (0, 12)
    assert {count["prompt_tokens"] for count in counts} == {len(job.prompts[0])}
    assert all(c["total_tokens"] == c["prompt_tokens"] + c["completion_tokens"] for c in counts)


@pytest.mark.parametrize(
    ("chunk", "status", "text"),
    [
        (StreamChunk("a", [5], finish_reason="timeout"), 504, "time"),
        (StreamChunk("a", [5], finish_reason="abort"), 500, "ended by abort"),
        (StreamChunk("a", [5], finish_reason="error"), 500, "ended by error"),
    ],
)
def test_an_end_that_is_no_answer_is_a_failure(
    llm: LLM, chunk: StreamChunk, status: int, text: str
) -> None:
    stream = AnswerStream(job_for(llm, CHAT, messages=USER, stream=True))
    sent = stream.take(0, [chunk, StreamChunk("never", [6])])
    assert stream.failure is not None
    assert (stream.failure.status, stream.failure.type) == (status, "server_error")
    assert text in str(stream.failure)
    assert not stream.complete
    assert [e["choices"][0]["delta"].get("content") for e in events_of(sent)] == ["", "a"]
    assert b'finish_reason":"' not in sent


def test_a_part_of_a_prompt_that_was_read_is_no_event(llm: LLM) -> None:
    stream = AnswerStream(job_for(llm, CHAT, messages=USER, stream=True))
    assert stream.take(0, [StreamChunk("", []), StreamChunk("", [])]) == b""
    assert len(events_of(stream.take(0, [StreamChunk("", [7])]))) == 1, "the role"


@pytest.mark.parametrize("seed", range(50))
def test_text_is_quoted_as_json_in_one_line(seed: int) -> None:
    chars = random.Random(seed)
    alphabet = [
        *map(chr, range(0x100)),
        "\u2028",
        "\u2029",
        "\u0085",
        "🌾",
        "水",
        "\ufeff",
        "\U0010ffff",
    ]
    text = "".join(chars.choices(alphabet, k=40))
    written = quoted(text)
    assert json.loads(written) == text
    assert len(written.decode().splitlines()) == 1
