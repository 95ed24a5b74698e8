"""Requests: what they ask of sampling, and what is refused before a model sees it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from farthing import SamplingParams, StructuredOutputsParams
from farthing.openai_protocol.chat import ChatRequest
from farthing.openai_protocol.completions import MAX_PROMPTS, CompletionRequest
from farthing.openai_protocol.endpoints import CHAT, COMPLETIONS, parse_request
from farthing.openai_protocol.errors import RequestError
from support.openai_requests import SCHEMA, chat, completion, parsed


@pytest.mark.parametrize(
    "make", [lambda **f: chat(**f)[1], lambda **f: completion(**f)[1]], ids=["chat", "completion"]
)
def test_every_parameter_reaches_sampling(make: Callable[..., dict[str, Any]]) -> None:
    given = {
        "n": 3,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 40,
        "min_p": 0.05,
        "typical_p": 0.95,
        "repetition_penalty": 1.1,
        "presence_penalty": 0.5,
        "frequency_penalty": -0.5,
        "dry_multiplier": 0.8,
        "dry_base": 2.0,
        "dry_allowed_length": 3,
        "dry_penalty_last_n": 64,
        "dry_sequence_breakers": ["\n"],
        "allowed_token_ids": [1, 2],
        "bad_words": ["ha'penny"],
        "max_tokens": 9,
        "min_tokens": 2,
        "stop": ["end"],
        "stop_token_ids": [7],
        "ignore_eos": True,
        "include_stop_str_in_output": True,
        "skip_special_tokens": False,
        "seed": 11,
        "prompt_logprobs": 3,
        "structured_outputs": {"regex": "[a-z]+"},
    }
    url = CHAT if "messages" in make() else COMPLETIONS
    expected = SamplingParams(
        **{**given, "structured_outputs": StructuredOutputsParams(regex="[a-z]+")},  # type: ignore[arg-type]
        logit_bias={5: -1.5},
    )
    assert parsed(url, make(**given, logit_bias={"5": -1.5})).params() == expected


def test_defaults_are_the_apis() -> None:
    assert parsed(*chat()).params() == SamplingParams(max_tokens=None)
    assert parsed(*completion()).params() == SamplingParams(max_tokens=16)
    nulls = dict.fromkeys(("temperature", "top_p", "n", "stop", "seed", "logprobs", "stream"))
    assert parsed(*chat(**nulls)).params() == SamplingParams(max_tokens=None)


@pytest.mark.parametrize(
    ("sent", "limit"),
    [
        (chat(max_tokens=5), 5),
        (chat(max_completion_tokens=6), 6),
        (chat(max_tokens=5, max_completion_tokens=6), 6),
        (chat(max_tokens=2**31), 2**31),
        (completion(max_tokens=0, echo=True), 1),
        (completion(n_predict=0, echo=True), 1),
        (completion(n_predict=1), 1),
        (completion(n_predict=-1), None),
        (completion(max_new_tokens=1), 1),
        (completion(n_predict=7, max_tokens=7), 7),
        (chat(n_predict=1), 1),
        (chat(n_predict=-1), None),
        (chat(max_new_tokens=3, max_completion_tokens=3, max_tokens=4), 3),
    ],
)
def test_the_limit_of_an_answer(sent: tuple[str, dict[str, Any]], limit: int | None) -> None:
    assert parsed(*sent).params().max_tokens == limit


@pytest.mark.parametrize(
    ("sent", "logprobs", "prompt_logprobs"),
    [
        (chat(logprobs=False), None, None),
        (chat(logprobs=True), 0, None),
        (chat(logprobs=True, top_logprobs=4), 4, None),
        (completion(logprobs=2), 2, None),
        (completion(logprobs=2, echo=True), 2, 2),
        (completion(logprobs=2, echo=True, prompt_logprobs=5), 2, 5),
        (completion(echo=True), None, None),
    ],
)
def test_log_probabilities_asked(
    sent: tuple[str, dict[str, Any]], logprobs: int | None, prompt_logprobs: int | None
) -> None:
    params = parsed(*sent).params()
    assert (params.logprobs, params.prompt_logprobs) == (logprobs, prompt_logprobs)


def test_a_negative_seed_is_one_of_its_own() -> None:
    seeds = {parsed(*chat(seed=seed)).params().seed for seed in (-1, -(2**63), 0, 2**64 - 2)}
    assert seeds == {2**64 - 1, 2**63, 0, 2**64 - 2}


@pytest.mark.parametrize(
    ("fields", "form"),
    [
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": {"type": "json_object"}}, {"json_object": True}),
        ({"response_format": {"type": "json_object", "schema": SCHEMA}}, {"json": SCHEMA}),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "n", "strict": True, "schema": SCHEMA},
                }
            },
            {"json": SCHEMA},
        ),
        ({"structured_outputs": {"json": json.dumps(SCHEMA)}}, {"json": SCHEMA}),
        ({"structured_outputs": {"choice": ["a", "b"]}}, {"choice": ["a", "b"]}),
        ({"structured_outputs": {"grammar": 'start: "a"'}}, {"grammar": 'start: "a"'}),
        ({"guided_json": SCHEMA}, {"json": SCHEMA}),
        ({"guided_regex": "a+"}, {"regex": "a+"}),
        ({"guided_choice": ["a"]}, {"choice": ["a"]}),
        ({"guided_grammar": 'start: "a"'}, {"grammar": 'start: "a"'}),
        ({"guided_grammar": 'root ::= "a"'}, {"grammar": 'root ::= "a"'}),
        ({"grammar": 'root ::= "a"'}, {"grammar": 'root ::= "a"'}),
        ({"grammar": ""}, None),
        ({"response_format": {"type": "text"}, "guided_regex": "a"}, {"regex": "a"}),
    ],
)
def test_the_form_of_the_answer(fields: dict[str, Any], form: dict[str, Any] | None) -> None:
    found = parsed(*chat(**fields)).params().structured_outputs
    expected = None if form is None else StructuredOutputsParams(**form)
    assert (found is None) == (expected is None)
    if found is not None and expected is not None:
        assert (found.kind, found.source) == (expected.kind, expected.source)


def test_messages_reach_the_template_in_openais_forms() -> None:
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "pence", "arguments": '{"of": "farthing"}'},
    }
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "How"}], "cache_control": {}},
        {"role": "assistant", "content": None, "tool_calls": [call], "reasoning": "Hm."},
        {"role": "tool", "content": "0.25", "tool_call_id": "c1"},
    ]
    request = parsed(
        *chat(
            messages=messages,
            chat_template_kwargs={"enable_thinking": False},
            documents=[{"text": "A farthing"}],
            reasoning_effort="low",
            continue_final_message=True,
        )
    )
    assert isinstance(request, ChatRequest)
    assert request.for_template() == {
        "messages": [
            messages[0],
            {"role": "user", "content": [{"type": "text", "text": "How"}]},
            messages[2],
            messages[3],
        ],
        "add_generation_prompt": None,
        "continue_final_message": True,
        "chat_template_kwargs": {
            "enable_thinking": False,
            "documents": [{"text": "A farthing"}],
            "reasoning_effort": "low",
        },
    }


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        ("a", ["a"]),
        (["a", "b"], ["a", "b"]),
        ([1, 2], [[1, 2]]),
        ([[1], [2, 3]], [[1], [2, 3]]),
        (["a"] * MAX_PROMPTS, ["a"] * MAX_PROMPTS),
    ],
)
def test_prompts_in_each_form(prompt: Any, prompts: list[Any]) -> None:
    request = parsed(*completion(prompt=prompt))
    assert isinstance(request, CompletionRequest)
    assert request.prompts() == prompts


@pytest.mark.parametrize(
    "fields",
    [
        {"n_predict": 5, "max_tokens": 6},
        {"max_new_tokens": 5, "max_tokens": 6},
        {"n_predict": -1, "max_new_tokens": 6},
    ],
)
def test_two_limits_must_agree(fields: dict[str, int]) -> None:
    for sent in (chat(**fields), completion(**fields)):
        with pytest.raises(RequestError, match="says something else; give one of them"):
            parsed(*sent)


def test_an_effort_in_either_form_reaches_the_template() -> None:
    forms: list[dict[str, Any]] = [
        {"reasoning_effort": "low"},
        {"reasoning": {"effort": "low"}},
        {"reasoning_effort": "low", "reasoning": {"effort": "low"}},
    ]
    for fields in forms:
        request = parsed(*chat(**fields))
        assert isinstance(request, ChatRequest)
        assert request.for_template()["chat_template_kwargs"] == {"reasoning_effort": "low"}


def test_what_nobody_knows_is_left_out_and_named() -> None:
    request = parsed(
        *chat(
            user="me",
            metadata={},
            store=True,
            mood="good",
            best_of=1,
            suffix="",
            tool_choice="auto",
        )
    )
    assert request.unknown_fields == ("mood",)
    assert request.params() == SamplingParams(max_tokens=None)


def test_several_problems_are_told_and_the_rest_counted() -> None:
    with pytest.raises(RequestError) as caught:
        parsed(*chat(temperature=9, seed="x", top_p="y", min_p="z", top_k="w"))
    assert str(caught.value).count(";") == 2
    assert str(caught.value).endswith(", and 2 more")


def test_another_url_is_not_found() -> None:
    with pytest.raises(RequestError) as caught:
        parse_request("/v1/embeddings", {})
    assert (caught.value.status, caught.value.type) == (404, "not_found_error")
