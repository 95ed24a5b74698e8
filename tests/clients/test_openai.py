"""The OpenAI client against a served tiny model: what it gets is what ``LLM`` says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clients.environments import run_client
from clients.server import NAME, serving
from farthing import LLM, SamplingParams

pytestmark = [pytest.mark.clients, pytest.mark.timeout(1800)]  # an environment may be made first

MESSAGES = [
    {"role": "system", "content": "Answer in short."},
    {"role": "user", "content": "Who weighs the flour? 🌾"},
]
PROMPT = "The miller weighs the"
GREEDY = SamplingParams(temperature=0, max_tokens=24)


def said(llm: LLM, params: SamplingParams) -> list[str]:
    (output,) = llm.chat(MESSAGES, params)
    return [answer.text for answer in output.outputs]


@pytest.fixture(scope="module")
def stop(llm: LLM) -> str:
    """A string from the middle of the greedy answer."""
    (text,) = said(llm, GREEDY)
    assert len(text) > 12
    return text[9:12]


@pytest.fixture(scope="module")
def got(url: str, stop: str) -> dict[str, Any]:
    """What the synchronous client was answered."""
    answers: dict[str, Any] = run_client(
        "common", "openai_sync", url, NAME, messages=MESSAGES, prompt=PROMPT, stop=[stop, "never"]
    )
    return answers


def test_models_are_listed(got: dict[str, Any]) -> None:
    assert got["models"] == [NAME]
    assert got["retrieved"] == NAME


def test_a_conversation_is_answered(got: dict[str, Any], llm: LLM) -> None:
    (output,) = llm.chat(MESSAGES, GREEDY)
    (answer,) = output.outputs
    assert got["chat"]["choices"] == [["assistant", answer.text, answer.finish_reason]]
    usage = got["chat"]["usage"]
    assert usage["prompt_tokens"] == len(output.prompt_token_ids)
    assert usage["completion_tokens"] == len(answer.token_ids)
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert (got["chat"]["model"], got["chat"]["object"]) == (NAME, "chat.completion")


@pytest.mark.parametrize(("stream", "whole"), [("stream", "chat"), ("stopped_stream", "stopped")])
def test_a_stream_is_the_answer_in_pieces(got: dict[str, Any], stream: str, whole: str) -> None:
    pieces, answer = got[stream], got[whole]
    ((role, text, reason),) = answer["choices"]
    assert "".join(pieces["texts"]) == text
    assert len(pieces["texts"]) > 1
    assert (pieces["roles"], pieces["reasons"], pieces["ids"]) == ([role], [reason], 1)
    ((choices, usage),) = pieces["usages"]
    assert choices == 0
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert usage[name] == answer["usage"][name]


def test_a_stop_string_is_never_sent(got: dict[str, Any], llm: LLM, stop: str) -> None:
    (expected,) = said(llm, SamplingParams(temperature=0, max_tokens=24, stop=[stop, "never"]))
    ((_, text, reason),) = got["stopped"]["choices"]
    assert (text, reason) == (expected, "stop")
    assert stop not in text


def test_a_seed_gives_the_same_answer(got: dict[str, Any], llm: LLM) -> None:
    texts = [answer["choices"][0][1] for answer in got["seeded"]]
    expected = [said(llm, SamplingParams(seed=seed, max_tokens=24))[0] for seed in (7, 7, 8)]
    assert texts == expected
    assert texts[0] == texts[1] != texts[2]
    several = [text for _, text, _ in got["several"]["choices"]]
    assert several == said(llm, SamplingParams(seed=7, max_tokens=8, n=3))
    assert len({*several}) == 3


def test_completions_have_echo_and_log_probabilities(got: dict[str, Any], llm: LLM) -> None:
    (output,) = llm.generate(PROMPT, GREEDY)
    assert got["completion"]["text"] == output.outputs[0].text
    params = SamplingParams(temperature=0, max_tokens=4, logprobs=2, prompt_logprobs=2)
    (output,) = llm.generate(PROMPT, params)
    echo = got["echo"]
    assert echo["text"] == PROMPT + output.outputs[0].text
    assert output.prompt_logprobs is not None
    assert output.outputs[0].logprobs is not None
    entries = [*output.prompt_logprobs, *output.outputs[0].logprobs]
    expected = [entry and next(iter(entry.values())).logprob for entry in entries]
    assert echo["logprobs"]["token_logprobs"] == expected
    assert expected[0] is None
    assert len(expected) == len(output.prompt_token_ids) + 4
    offsets = echo["logprobs"]["text_offset"]
    assert offsets == sorted(offsets)


def test_an_answer_is_parsed(got: dict[str, Any]) -> None:
    parsed = got["parsed"]
    assert parsed["reason"] == "stop", parsed
    coin = parsed["coin"]
    assert coin == json.loads(parsed["content"])
    assert {*coin} == {"name", "quarters", "old"}


def test_errors_are_the_clients_own(got: dict[str, Any]) -> None:
    errors = got["errors"]
    assert errors["model"]["class"] == "NotFoundError"
    assert errors["model"]["code"] == "model_not_found"
    assert errors["value"]["class"] == "BadRequestError"
    assert errors["value"]["param"] == "temperature"
    assert errors["long"]["class"] == "BadRequestError"
    assert errors["long"]["code"] == "context_length_exceeded"


def test_many_streams_at_a_time(url: str, llm: LLM) -> None:
    contents = [f"Question {number} about bread" for number in range(12)]
    got = run_client("common", "openai_async", url, NAME, contents=contents)
    expected = [
        llm.chat([{"role": "user", "content": content}], GREEDY)[0].outputs[0].text
        for content in contents
    ]
    assert got["texts"] == expected
    assert expected[0].startswith(got["left"])
    assert got["left"] != expected[0]


def test_who_is_refused_comes_when_told_and_is_answered(model: Path, llm: LLM) -> None:
    contents = [f"Question {number} about bread" for number in range(24)]
    places = ("--max-num-seqs", "1", "--max-num-queued-reqs", "2", "--threads", "1")
    with serving(model, "--served-model-name", NAME, *places) as url:
        got = run_client("common", "openai_retries", url, NAME, contents=contents)
    params = SamplingParams(temperature=0, max_tokens=48)
    expected = [
        llm.chat([{"role": "user", "content": content}], params)[0].outputs[0].text
        for content in contents
    ]
    assert got["texts"] == expected
    assert got["refused"]
    assert all(seconds > 0 for seconds in got["refused"])
    assert got["seconds"] >= min(got["refused"])
    assert {*got["kinds"]} == {"ChatCompletion", "RateLimitError"}
