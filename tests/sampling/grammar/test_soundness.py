"""What llguidance alone would let through, and a checker of JSON schemas would not."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import jsonschema
import numpy as np
import pytest

from farthing.errors import InvalidParameterError
from farthing.sampling.grammar.compiler import GrammarCompiler
from farthing.sampling.grammar.matcher import MaskFiller
from farthing.sampling.grammar.params import StructuredOutputsParams
from farthing.sampling.grammar.vocabulary import GrammarVocabulary

END = 256
COMPILER = GrammarCompiler(
    GrammarVocabulary(
        END + 1,
        lambda i: bytes([i]) if i < END else b"<end>",
        [END],
        [END],
        lambda text: list(text.encode()),
    )
)


def takes(params: StructuredOutputsParams, text: str) -> bool:
    """Whether ``text``, byte by byte, can be the whole answer."""
    matcher, masks = COMPILER.matcher(params), MaskFiller(1)
    for token in (*text.encode(), END):
        (mask,) = masks.fill([matcher])
        assert matcher.error is None
        if not np.unpackbits(mask.view(np.uint8), bitorder="little")[token]:
            return False
        matcher.accept(token)
    return True


OBJECT = {"type": "object", "properties": {"a": {"type": "integer"}, "\n": {"type": "integer"}}}


@pytest.mark.parametrize(
    "schema",
    [
        OBJECT,
        OBJECT | {"additionalProperties": {"type": "string"}},
        OBJECT | {"required": ["a"]},
        {"type": "object", "patternProperties": {"^[a\n]": {"type": "integer"}}},
        {"type": "object", "patternProperties": {"": {"type": "integer"}}},
        {"allOf": [OBJECT, {"type": "object", "properties": {"b": {}}}]},
    ],
    ids=str,
)
def test_an_escape_in_a_name_opens_no_way_around_its_schema(schema: dict[str, Any]) -> None:
    params = StructuredOutputsParams(json=schema)
    for name in ("\\u0061", "\\u000a", "\\u000A"):
        for start in ("{", '{"a":1,'):
            assert not takes(params, start + f'"{name}":"x"}}')
    assert takes(params, '{"a":1}')


NUMBERS = (-3, -2.5, -2, -0.5, 0, 0.5, 2, 2.5, 3, 999_999_999, 999_999_999.5)
TEXTS = ("-3", "-2.75", "-2.5", "-2.1", "-2", "-2.0", "-0.5", "-0.1", "-0", "0", "0.0", "0.1",
         "0.5", "1", "2", "2.0", "2.1", "2.5", "2.75", "3", "3.0", "999999999", "999999999.0",
         "999999999.25", "1000000000")  # fmt: skip
BOUNDS = tuple(product(("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")))


@pytest.mark.parametrize("low", [None, *NUMBERS])
def test_a_number_is_within_its_bounds(low: float | None) -> None:
    """A whole exclusive bound is out even where the other one has the same whole part."""
    inside = 0
    for high, (low_key, high_key) in product([None, *NUMBERS], BOUNDS):
        schema: dict[str, Any] = {"type": "number"}
        schema |= {} if low is None else {low_key: low}
        schema |= {} if high is None else {high_key: high}
        try:
            params = StructuredOutputsParams(json=schema)
        except InvalidParameterError:
            assert low is not None
            assert high is not None
            assert low >= high
            continue
        valid = jsonschema.Draft202012Validator(schema).is_valid
        for text in TEXTS:
            if takes(params, text):
                inside += 1
                assert valid(json.loads(text)), (schema, text)
            elif "." not in text and text != "-0":
                assert not valid(json.loads(text)), (schema, text)
    assert inside > 3


def test_bounds_that_meet_where_schemas_do_are_kept() -> None:
    parts = [{"type": "number", "exclusiveMinimum": 2}, {"type": "number", "maximum": 2.5}]
    params = StructuredOutputsParams(json={"allOf": parts})
    assert not takes(params, "2")
    assert takes(params, "2.1")
    whole = StructuredOutputsParams(json={"type": "integer", "exclusiveMinimum": 0, "maximum": 2})
    assert [text for text in ("0", "1", "2", "3") if takes(whole, text)] == ["1", "2"]


CONTROL = [chr(i) for i in (*range(0x20), 0x7F)]
SHORT = {"\b", "\t", "\n", "\f", "\r"}  # those that JSON writes without \\u


@pytest.mark.parametrize("character", CONTROL, ids=ascii)
def test_a_control_character_is_kept_or_refused_and_never_left_out(character: str) -> None:
    code = ord(character)
    texts = [{"const": f"0{character}"}, {"enum": [["1", f"0{character}"]]}]
    spellings = [
        character,
        f"\\x{code:02x}",
        f"\\u{code:04X}",
        f"\\x{{{code:x}}}",
        f"[{character}]",
    ]
    patterns = [{"type": "string", "pattern": f"^0{spelling}$"} for spelling in spellings]
    for schema in (*texts, *patterns):
        if character in SHORT:
            wanted = json.dumps(schema.get("const", f"0{character}"))
            wanted = json.dumps(schema["enum"][0]) if "enum" in schema else wanted
            params = StructuredOutputsParams(json=schema)
            assert takes(params, wanted.replace(", ", ","))
            assert not takes(params, '["1","0"]' if "enum" in schema else '"0"')
        else:
            with pytest.raises(InvalidParameterError, match="which answers cannot have"):
                StructuredOutputsParams(json=schema)


@pytest.mark.parametrize(
    ("pattern", "answer"),
    [
        (r"^[^\x00-\x1f\x7f]+$", "a"),
        (r"^[\x00-\x1f]$", None),
        (r"^[\x1fa]$", "a"),
        (r"^[^\x1f]$", "a"),
        (r"^\\x1f$", r"\\x1f"),
        (r"^\\\x1f$", None),
        (r"^[\x1f\x01-\x07]$", None),
        (r"^\v$", None),
        (r"^\a$", None),
        (r"^]\x1f[]$", None),
    ],
)
def test_a_set_with_a_control_character_is_one_without(pattern: str, answer: str | None) -> None:
    schema = {"type": "string", "pattern": pattern}
    try:
        params = StructuredOutputsParams(json=schema)
        assert not takes(params, '""')
    except InvalidParameterError:
        assert answer is None
        return
    assert answer is None or takes(params, f'"{answer}"')
