"""Requests with a grammar among others: how they end, alone and beside other parameters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from farthing import LLM, RequestOutput, SamplingParams, StructuredOutputsParams
from farthing.errors import FarthingError
from support.tiny_models import make_tiny_model

PROMPT = "The miller weighs"
AMBIGUOUS = StructuredOutputsParams(grammar=f'start: e\ne: {"e? " * 12} "a"')
"""Each letter makes the next dearer, until the engine gives up."""


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    return LLM(make_tiny_model("llama-mha", tmp_path_factory.mktemp("tiny")), kv_cache_tokens=4096)


def ask(llm: LLM, grammar: StructuredOutputsParams | None, **params: Any) -> RequestOutput:
    asked = SamplingParams(**{"max_tokens": 60, "seed": 1, **params}, structured_outputs=grammar)
    return llm.generate(PROMPT, asked)[0]


def test_an_answer_that_is_whole_stops_with_an_end_token(llm: LLM) -> None:
    answer = ask(llm, StructuredOutputsParams(choice=["bread"])).outputs[0]
    assert (answer.text, answer.finish_reason) == ("bread", "stop")
    assert answer.token_ids[-1] in llm.tokenizer.eos_token_ids
    assert answer.stop_reason == answer.token_ids[-1]


def test_ignore_eos_goes_on_as_long_as_the_grammar_does(llm: LLM) -> None:
    grammar = StructuredOutputsParams(regex="[ab]{1,30}")
    lengths = [len(ask(llm, grammar, seed=i).outputs[0].text) for i in range(8)]
    assert min(lengths) < 30
    for seed in range(8):
        answer = ask(llm, grammar, seed=seed, ignore_eos=True).outputs[0]
        assert (len(answer.text), answer.finish_reason) == (30, "stop")
    cut = ask(llm, StructuredOutputsParams(regex="[ab]+"), ignore_eos=True).outputs[0]
    assert (len(cut.token_ids), cut.finish_reason) == (60, "length")


def test_the_last_token_allowed_may_be_the_end(llm: LLM) -> None:
    whole = ask(llm, StructuredOutputsParams(choice=["bread"])).outputs[0]
    for ignore_eos in (False, True):
        answer = ask(
            llm,
            StructuredOutputsParams(choice=["bread"]),
            max_tokens=len(whole.token_ids),
            ignore_eos=ignore_eos,
        ).outputs[0]
        assert (answer.text, answer.finish_reason) == ("bread", "stop")
    cut = ask(llm, StructuredOutputsParams(choice=["bread"]), max_tokens=1).outputs[0]
    assert cut.finish_reason == "length"
    assert "bread".startswith(cut.text)


def test_a_stop_string_ends_it_early(llm: LLM) -> None:
    answer = ask(llm, StructuredOutputsParams(choice=["weighs bread today"]), stop="read").outputs[
        0
    ]
    assert (answer.text, answer.finish_reason, answer.stop_reason) == ("weighs b", "stop", "read")


def test_a_stop_token_of_the_request_ends_it_where_the_grammar_has_it(llm: LLM) -> None:
    comma = llm.tokenizer.token_to_id(",")
    assert comma is not None
    grammar = StructuredOutputsParams(choice=["1,2"])
    answer = ask(llm, grammar, stop_token_ids=[comma]).outputs[0]
    assert (answer.text, answer.finish_reason, answer.stop_reason) == ("1", "stop", comma)


def test_log_probabilities_are_the_models_own(llm: LLM) -> None:
    answer = ask(llm, StructuredOutputsParams(choice=["bread"]), logprobs=2, temperature=0).outputs[
        0
    ]
    assert answer.logprobs is not None
    first = answer.logprobs[0]
    assert next(iter(first)) == answer.token_ids[0]
    assert first[answer.token_ids[0]].rank > 1  # the model would have said something else


def test_a_grammar_that_becomes_too_complex_ends_its_request_alone(llm: LLM) -> None:
    fine = StructuredOutputsParams(regex="[a-z]{20}")
    params = [
        SamplingParams(max_tokens=80, seed=i, structured_outputs=grammar, ignore_eos=True)
        for i, grammar in enumerate([fine, AMBIGUOUS, None, AMBIGUOUS, fine])
    ]
    together = llm.generate([PROMPT] * 5, params)
    assert [output.outputs[0].finish_reason for output in together] == [
        "stop",
        "error",
        "length",
        "error",
        "stop",
    ]
    for output in (together[1], together[3]):
        assert output.error is not None
        assert "structured_outputs" in output.error
        assert "too complex" in output.error
        assert "\n" not in output.error
        assert set(output.outputs[0].text) == {"a"}
    for i in (0, 2, 4):
        assert together[i].error is None
        alone = llm.generate(PROMPT, params[i])[0]
        assert alone.outputs[0].token_ids == together[i].outputs[0].token_ids
    assert not llm.engine.scheduler.holders()
    llm.engine.check_integrity()


def test_a_stream_raises_the_error(llm: LLM) -> None:
    asked = SamplingParams(max_tokens=80, structured_outputs=AMBIGUOUS, ignore_eos=True, seed=0)
    stream = llm.stream(PROMPT, asked)
    with pytest.raises(FarthingError, match="too complex"):
        list(stream)


def test_a_stream_gives_what_generate_gives(llm: LLM) -> None:
    grammar = StructuredOutputsParams(regex="[a-z]{3}(水|🌾){2}")
    asked = SamplingParams(max_tokens=60, structured_outputs=grammar, seed=4)
    whole = llm.generate(PROMPT, asked)[0].outputs[0]
    chunks = list(llm.stream(PROMPT, asked))
    assert "".join(chunk.text for chunk in chunks) == whole.text
    assert chunks[-1].finish_reason == whole.finish_reason == "stop"


@pytest.mark.slow
def test_a_real_model_keeps_to_a_schema(qwen_gguf: Path) -> None:
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "What it is called."},
            "kind": {"enum": ["coin", "note"]},
            "pence": {"type": "number", "minimum": 0, "maximum": 100},
            "metals": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 3},
            "first_struck": {"type": "string", "format": "date"},
        },
        "required": ["name", "kind", "pence", "metals", "first_struck"],
        "additionalProperties": False,
    }
    llm = LLM(qwen_gguf, max_model_len=1024, kv_cache_tokens=4096)
    conversation = [{"role": "user", "content": "Describe the farthing as JSON."}]
    asked = [
        SamplingParams(
            max_tokens=200,
            temperature=temperature,
            seed=seed,
            structured_outputs=StructuredOutputsParams(json=schema),
        )
        for seed, temperature in enumerate((0.0, 0.7, 1.0, 1.3))
    ]
    for output in llm.chat([conversation] * 4, asked):
        assert output.outputs[0].finish_reason == "stop"
        jsonschema.validate(json.loads(output.outputs[0].text), schema)
    alone = llm.chat(conversation, asked[1])[0].outputs[0]
    assert alone.token_ids == llm.chat([conversation] * 4, asked)[1].outputs[0].token_ids


def ids_of(llm: LLM, text: str) -> list[int]:
    """Tokens of one byte each that ``text`` can be written with."""
    ids = [llm.tokenizer.token_to_id(letter) for letter in text]
    assert None not in ids
    return [i for i in ids if i is not None]


def test_allowed_tokens_and_the_grammar_must_both_agree(llm: LLM) -> None:
    grammar = StructuredOutputsParams(regex="[abc]{4}")
    ends = list(llm.tokenizer.eos_token_ids)
    answer = ask(llm, grammar, allowed_token_ids=[*ids_of(llm, "bz"), *ends]).outputs[0]
    assert (answer.text, answer.finish_reason) == ("bbbb", "stop")
    for allowed in (ids_of(llm, "b"), ids_of(llm, "z")):  # no end; nothing at all
        output = ask(llm, grammar, allowed_token_ids=allowed)
        assert output.outputs[0].finish_reason == "error"
        assert output.error is not None
        assert output.error.startswith("structured_outputs, allowed_token_ids: no token is allowed")
        assert output.invalid_request


def test_an_answer_that_must_be_longer_than_its_grammar_is_an_error(llm: LLM) -> None:
    output = ask(llm, StructuredOutputsParams(choice=["a"]), min_tokens=9)
    assert output.outputs[0].finish_reason == "error"
    assert output.error == (
        "structured_outputs, min_tokens: no token is allowed as token 2 of the answer"
    )
    assert output.invalid_request
    long = ask(llm, StructuredOutputsParams(regex="(ab)*"), min_tokens=20).outputs[0]
    assert len(long.token_ids) > 20


def test_bias_and_penalties_act_within_the_grammar(llm: LLM) -> None:
    (z,) = ids_of(llm, "z")
    grammar = StructuredOutputsParams(regex="[a-z]{3}")
    answer = ask(llm, grammar, logit_bias={z: 100}).outputs[0]
    assert answer.text == "zzz"
    other = ask(llm, grammar, logit_bias={z: -100}, temperature=0).outputs[0]
    assert "z" not in other.text
    assert len(other.text) == 3


def test_log_probabilities_of_the_prompt_come_with_it(llm: LLM) -> None:
    plain = ask(llm, None, prompt_logprobs=1)
    held = ask(llm, StructuredOutputsParams(choice=["yes"]), prompt_logprobs=1)
    assert held.prompt_logprobs == plain.prompt_logprobs
    assert held.outputs[0].text == "yes"
