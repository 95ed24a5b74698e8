"""``StructuredOutputsParams``: exactly one grammar, checked when it is made."""

from __future__ import annotations

from typing import Any

import numpy as np
import psutil
import pytest

from farthing import SamplingParams, StructuredOutputsParams
from farthing.errors import InvalidParameterError
from farthing.sampling.grammar.compiler import GrammarCompiler
from farthing.sampling.grammar.matcher import MaskFiller
from farthing.sampling.grammar.translation import CACHED_GRAMMARS, translate
from farthing.sampling.grammar.vocabulary import GrammarVocabulary


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"json_object": False},
        {"json": {}, "regex": "a"},
        {"choice": ["a"], "json_object": True},
        {"json": "{}", "regex": "a", "choice": ["a"], "grammar": 'start: "a"'},
    ],
)
def test_exactly_one_is_needed(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameterError, match="exactly one"):
        StructuredOutputsParams(**arguments)


WRONG: tuple[dict[str, Any], ...] = (
    {"json": 3},
    {"regex": 3},
    {"grammar": b"start: x"},
    {"json_object": "yes"},
    {"choice": "yes"},
    {"choice": []},
    {"choice": ["yes", ""]},
    {"choice": ["yes", 3]},
    {"choice": 3},
    {"choice": ["\ud800"]},
    {"choice": ["a" * 5000]},
    {"choice": [f"{i:0100}" for i in range(1000)]},
    {"regex": "\ud800"},
    {"grammar": "\ud800"},
)


@pytest.mark.parametrize("arguments", WRONG, ids=lambda a: next(iter(a)))
def test_a_wrong_value_is_named(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameterError, match="structured_outputs") as raised:
        StructuredOutputsParams(**arguments)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 300


def test_sampling_params_take_nothing_else() -> None:
    assert SamplingParams(structured_outputs=StructuredOutputsParams(regex="a")) is not None
    for wrong in ({"json": {}}, "{}", {}):
        with pytest.raises(InvalidParameterError, match="structured_outputs"):
            SamplingParams(structured_outputs=wrong)  # type: ignore[arg-type]


REGEXES = {
    r"a(?=b)": "look-around",
    r"(?<!a)b": "look-around",
    r"(a)\1": "backreference",
    r"(?P=name)": "not supported",
    r"(?x)a # b": "not supported",
    r"\bword": "lookarounds",
    "a++b": "possessive",
    "a{3}+b": "possessive",
    "[[a]b]": "in a class",
    "[a&&b]": "in a class",
    "[a--b]": "in a class",
    "[]a]": "in a class",
    '{"a": 1}': "literal one must be written",
    "a(b": "unclosed group",
    "a)b": "closing bracket",
    "[ab": "unclosed class",
    "ab\\": "backslash",
    "*a": "repetition operator missing",
    r"[^\s\S]": "no text satisfies it",
}


@pytest.mark.parametrize("expression", REGEXES)
def test_an_expression_others_read_otherwise_is_refused(expression: str) -> None:
    with pytest.raises(InvalidParameterError) as raised:
        StructuredOutputsParams(regex=expression)
    assert REGEXES[expression] in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "a{2}{3}",
        "a/b\\/c",
        "(?i:a)b(?P<name>c)(?s).(?<other>d)",
        r"[\]\[a-z\-&~]{0,3}\{\}",
        r"\x41\u0042[^\]]",
        "a+?b*?c??d{1,2}?",
        "水|é",
    ],
)
def test_a_sound_expression_is_taken(expression: str) -> None:
    StructuredOutputsParams(regex=expression)


LARKS = {
    "": "is empty",
    "start: foo": 'unknown name: "foo"',
    'start: "a" )': "expecting",
    'begin: "a"': "start",
    'start: "a': "line 1: cannot be read",
    "start: %json {}": "%json is not supported",
    '%llguidance {"no_forcing": true}\nstart: "a"': "%llguidance is not supported",
    'start: %lark { start: "a" }': "%lark is not supported",
    "start: <|im_end|>": "token ids",
    "start: <[3]>": "token ids",
    "start: @other": "other grammars",
    "start: t\nt[temperature=0.1]: /a/": "temperature is not supported",
    'start: t\nt[stop="x"]: /a/': "stop is not supported",
    "start: t\nt[max_tokens=3]: /a/": "max_tokens is not supported",
    "start: /a(?=b)/": "line 1: /a(?=b)/",
    "start: /a/x": "flag x",
    '{"grammars": [{"json_schema": {}}]}': "structured_outputs: Lark grammar",
}


@pytest.mark.parametrize("grammar", LARKS)
def test_a_lark_grammar_with_more_than_text_is_refused(grammar: str) -> None:
    with pytest.raises(InvalidParameterError) as raised:
        StructuredOutputsParams(grammar=grammar)
    assert LARKS[grammar] in str(raised.value)
    assert "\n" not in str(raised.value)


def test_what_stands_in_strings_and_comments_of_a_lark_grammar_is_text() -> None:
    StructuredOutputsParams(
        grammar='start: "%json" /<x>@y %json/ A // %json <x> temperature\nA: "a" # @b\n%ignore " "'
    )
    StructuredOutputsParams(grammar='%import common.INT\nstart: INT ("," INT)*\n')


def different_schema(i: int) -> StructuredOutputsParams:
    return StructuredOutputsParams(json={"properties": {f"p{i}": {"const": i}}, "type": "object"})


def test_what_was_asked_last_is_kept_and_no_more() -> None:
    for i in range(CACHED_GRAMMARS + 50):
        different_schema(i)
    information = translate.cache_info()
    assert information.currsize == information.maxsize == CACHED_GRAMMARS
    different_schema(CACHED_GRAMMARS + 49)
    assert translate.cache_info().hits == information.hits + 1
    different_schema(0)
    assert translate.cache_info().misses == information.misses + 1


@pytest.mark.slow
def test_ten_thousand_schemas_are_served_in_bounded_memory() -> None:
    words = [bytes([byte]) for byte in range(255)] + [b"<end>"]
    vocabulary = GrammarVocabulary(
        256, words.__getitem__, [255], [255], lambda text: list(text.encode())
    )
    compiler, filler = GrammarCompiler(vocabulary), MaskFiller(1)
    process = psutil.Process()

    def serve(first: int, last: int) -> int:
        for i in range(first, last):
            matcher = compiler.matcher(different_schema(i))
            for byte in f'{{"p{i}":{i}}}'.encode():
                (mask,) = filler.fill([matcher])
                assert mask[byte // 32] >> np.uint32(byte % 32) & 1
                matcher.accept(byte)
            matcher.accept(255)
            assert matcher.finished
        return int(process.memory_info().rss)

    before = serve(0, 1_000)
    after = serve(1_000, 10_000)
    assert after - before < 16 << 20
    assert translate.cache_info().currsize <= CACHED_GRAMMARS
