"""The promise of a grammar: what comes out satisfies it, and is the same however it is computed."""

from __future__ import annotations

import json
import re
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from farthing import LLM, SamplingParams, StructuredOutputsParams
from farthing.engine.outputs import CompletionOutput
from farthing.sampling.grammar.matcher import MaskFiller
from support.random_schemas import schemas
from support.tiny_models import make_tiny_model

PROMPT = "The miller weighs"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model("qwen2", tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def llm(path: Path) -> LLM:
    return LLM(path, kv_cache_tokens=8192)


def answers(
    llm: LLM, grammars: list[StructuredOutputsParams], **params: Any
) -> list[CompletionOutput]:
    """Sampled, at temperature 1 unless another is given, all in one batch."""
    asked = [
        SamplingParams(**{"max_tokens": 240, "seed": seed, **params}, structured_outputs=grammar)
        for seed, grammar in enumerate(grammars)
    ]
    outputs = llm.generate([PROMPT] * len(asked), asked)
    assert [output.error for output in outputs] == [None] * len(outputs)
    return [output.outputs[0] for output in outputs]


def check_json(text: str, schema: Any) -> None:
    """Validates with decimal numbers: in binary, 1.14 is no multiple of 0.01."""
    exact = json.loads(json.dumps(schema), parse_float=Decimal)
    validator = jsonschema.Draft202012Validator
    validator(exact, format_checker=validator.FORMAT_CHECKER).validate(
        json.loads(text, parse_float=Decimal)
    )


def completed(llm: LLM, grammar: StructuredOutputsParams, tokens: list[int]) -> str:
    """Text of ``tokens`` and something short that may follow them."""
    compiler = llm.engine.grammars
    assert compiler is not None
    whole = list(tokens)
    matcher = compiler.matcher(grammar, accepted=tokens)
    filler = MaskFiller(1)
    for _ in range(300):
        (mask,) = filler.fill([matcher])
        assert matcher.error is None
        allowed = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))
        token = min(allowed, key=lambda i: (_preference(llm.tokenizer.token_bytes(int(i))), i))
        matcher.accept(int(token))
        if matcher.finished:
            return llm.tokenizer.decode(whole, continuation=True)
        whole.append(int(token))
    raise AssertionError("no end in sight")


def _preference(data: bytes) -> int:
    """Ends of the answer first, then what closes something, then letters, white space last."""
    if data.startswith(b"<|"):
        return -1
    places = [b'"}],:0123456789-.abcdefghijklmnopqrstuvwxyz[{'.find(bytes([byte])) for byte in data]
    return 100 * len(data) + (1000 if -1 in places else places[0])


def test_random_schemas_are_kept(llm: LLM) -> None:
    reasons: Counter[str | None] = Counter()

    @settings(
        max_examples=50,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(st.lists(schemas(), min_size=1, max_size=8))
    def are_kept(asked: list[dict[str, Any]]) -> None:
        grammars = [StructuredOutputsParams(json=json.dumps(schema)) for schema in asked]
        for schema, grammar, answer in zip(asked, grammars, answers(llm, grammars), strict=True):
            reasons[answer.finish_reason] += 1
            if answer.finish_reason == "stop":
                check_json(answer.text, schema)
            else:
                assert (answer.finish_reason, len(answer.token_ids)) == ("length", 240)
                check_json(completed(llm, grammar, answer.token_ids), schema)

    are_kept()
    # It would say little of answers that were all cut.
    assert reasons["stop"] > 0.8 * reasons.total(), reasons
    assert reasons["stop"] > 100


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12),
        min_size=1,
        max_size=6,
    )
)
def test_a_choice_is_one_of_those_given(llm: LLM, choices: list[str]) -> None:
    grammar = StructuredOutputsParams(choice=choices)
    for answer in answers(llm, [grammar] * 4):
        assert answer.finish_reason == "stop"
        assert answer.text in choices


REGEXES = (
    r"[a-z]{1,9}@[a-z]{2,5}\.(com|org)",
    r"\d{4}-\d{2}-\d{2}",
    r"(?:yes|no)(?:, (?:yes|no)){0,3}!?",
    r"^-?(0|[1-9]\d{0,5})(\.\d{1,3})?$",
    r"[^\x00-\x7f]{1,8}",
    r"(?i)farthing|penny",
    r"[A-F\d]{2}(:[A-F\d]{2}){5}",
    r"a.{0,5}?b|/\*[^*]{0,9}\*/",
    r"\w{1,6}\s\W{1,3}",
    "水の?火|é{2,3}|🌾+🍞",
)


@pytest.mark.parametrize("expression", REGEXES)
def test_a_regular_expression_matches_the_whole_answer(llm: LLM, expression: str) -> None:
    grammar = StructuredOutputsParams(regex=expression)
    found = answers(llm, [grammar] * 12, temperature=4.0)  # the model is all but sure of some
    finished = [answer.text for answer in found if answer.finish_reason == "stop"]
    assert len(finished) > 8
    assert len(set(finished)) > 1
    for text in finished:
        assert re.fullmatch(expression, text, re.ASCII | re.IGNORECASE * ("i)" in expression))


LARK = """
start: sum
sum: product (("+" | "-") product)*
product: atom ("*" atom)?   // one at most
atom: NUMBER | "(" sum ")"
NUMBER: /[1-9][0-9]?/
%ignore " "
"""


def test_a_lark_grammar_is_kept(llm: LLM) -> None:
    found = answers(llm, [StructuredOutputsParams(grammar=LARK)] * 40)
    finished = [answer.text for answer in found if answer.finish_reason == "stop"]
    assert len(finished) > 20
    assert any(set("+-*") & set(text) for text in finished)
    for text in finished:
        assert re.fullmatch(r"[-+*() 0-9]+", text)
        compile(text.strip(), "answer", "eval")


def test_any_json_object_is_an_object(llm: LLM) -> None:
    found = answers(llm, [StructuredOutputsParams(json_object=True)] * 30)
    finished = [json.loads(answer.text) for answer in found if answer.finish_reason == "stop"]
    assert len(finished) > 5
    assert all(isinstance(answer, dict) for answer in finished)
    assert all(answer.text.startswith("{") for answer in found)


def test_white_space_between_json_tokens_is_bounded(llm: LLM) -> None:
    schema = {"type": "array", "items": {"type": "integer"}, "minItems": 8, "maxItems": 8}
    found = answers(llm, [StructuredOutputsParams(json=schema)] * 20)
    spaces = [space for answer in found for space in re.findall(r"\s+", answer.text)]
    assert len(spaces) > 50
    assert all(re.fullmatch(r" |\n {0,32}", space) for space in spaces)
    assert max(map(len, spaces)) > 2


MIXED = (
    StructuredOutputsParams(
        json={
            "type": "object",
            "properties": {
                "name": {"type": "string", "maxLength": 12},
                "tags": {"type": "array", "items": {"enum": ["水", "🌾", "penny"]}, "maxItems": 4},
            },
            "required": ["name", "tags"],
            "additionalProperties": False,
        }
    ),
    None,
    StructuredOutputsParams(regex=r"[a-z]{3}(-[a-z]{3}){0,9}"),
    StructuredOutputsParams(choice=["yes", "no", "perhaps"]),
    StructuredOutputsParams(grammar=LARK),
)


def mixed(llm: LLM, order: list[int]) -> list[tuple[list[int], str | None]]:
    asked = [
        SamplingParams(max_tokens=60, seed=i, structured_outputs=MIXED[i % len(MIXED)])
        for i in order
    ]
    outputs = llm.generate([f"{PROMPT} number {i}:" for i in order], asked)
    by_index = {
        i: (output.outputs[0].token_ids, output.outputs[0].finish_reason)
        for i, output in zip(order, outputs, strict=True)
    }
    return [by_index[i] for i in sorted(by_index)]


def test_an_answer_is_the_same_in_any_batch_and_however_it_is_computed(
    llm: LLM, path: Path
) -> None:
    alone = [mixed(llm, [i])[0] for i in range(10)]
    assert len({tuple(tokens) for tokens, _ in alone}) == 10
    assert mixed(llm, list(range(10))) == alone
    assert mixed(llm, [7, 3, 9, 0, 1, 8, 2, 6, 5, 4]) == alone
    for options in (
        {"num_threads": 1},
        {"num_threads": 2, "max_num_seqs": 3},
        {"max_num_batched_tokens": 5},
        {"use_cache": False},
    ):
        other = LLM(path, **{"kv_cache_tokens": 4096, **options})
        assert mixed(other, list(range(10))) == alone, options
