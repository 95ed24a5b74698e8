"""JSON schemas: what is not enforced is refused by name; what constrains nothing is no matter."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from farthing.errors import InvalidParameterError
from farthing.sampling.grammar.json_schema import check_schema
from farthing.sampling.grammar.keywords import NOT_SUPPORTED
from farthing.sampling.grammar.params import StructuredOutputsParams


def refused(schema: Any) -> str:
    with pytest.raises(InvalidParameterError) as raised:
        StructuredOutputsParams(json=schema)
    message = str(raised.value)
    assert message.startswith("structured_outputs: JSON schema")
    assert "\n" not in message
    assert len(message) < 400
    return message


PLACES: dict[str, Any] = {
    "#": lambda inner: inner,
    "#/properties/a~1b": lambda inner: {"type": "object", "properties": {"a/b": inner}},
    "#/items": lambda inner: {"type": "array", "items": inner},
    "#/prefixItems/1": lambda inner: {"prefixItems": [{}, inner]},
    "#/anyOf/0": lambda inner: {"anyOf": [inner, {"type": "null"}]},
    "#/allOf/0": lambda inner: {"allOf": [inner]},
    "#/oneOf/0": lambda inner: {"oneOf": [inner]},
    "#/additionalProperties": lambda inner: {"additionalProperties": inner},
    "#/patternProperties/x": lambda inner: {"patternProperties": {"x": inner}},
    "#/$defs/unused": lambda inner: {"type": "null", "$defs": {"unused": inner}},
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("keyword", ["frobnicate", "typ", "x-guidance", "nullable", "Type"])
def test_an_unknown_keyword_is_refused_wherever_it_stands(place: str, keyword: str) -> None:
    """Also where it is all there is: llguidance takes such a schema for no constraint at all."""
    for beside in ({}, {"type": "string"}):
        message = refused(PLACES[place]({**beside, keyword: "string"}))
        assert f'at {place}: keyword "{keyword}" is unknown' in message


@pytest.mark.parametrize(
    "keyword",
    sorted(NOT_SUPPORTED),
)
def test_a_keyword_that_is_not_enforced_is_refused(keyword: str) -> None:
    message = refused({"type": "array", keyword: True})
    assert f'keyword "{keyword}" is not supported' in message


def test_guidance_settings_cannot_be_loosened() -> None:
    for settings in ({"lenient": True}, {"whitespace_flexible": True}, {}):
        assert "x-guidance" in refused({"type": "object", "x-guidance": settings})


WRONG: dict[str, Any] = {
    "#/type": {"type": "strng"},
    "#/type ": {"type": ["string", "string"]},
    "#/format": {"type": "string", "format": "color"},
    "#/format ": {"format": "unknown"},
    "#/items": {"items": [{"type": "string"}]},
    "#/enum": {"enum": []},
    "#/required": {"required": ["a", 1]},
    "#/minLength": {"minLength": -1},
    "#/maxItems": {"maxItems": 2.5},
    "#/minItems": {"minItems": True},
    "#/minimum": {"minimum": "é" * 60},
    "#/exclusiveMinimum": {"minimum": 1, "exclusiveMinimum": True},
    "#/multipleOf": {"multipleOf": 0},
    "#/const": {"const": 2**60},
    "#/properties": {"properties": []},
    "#/anyOf": {"anyOf": []},
    "#/pattern": {"pattern": 3},
    "#/pattern ": {"pattern": "a(?=b)"},
    "#/pattern  ": {"pattern": "[[a]"},
    "#/$ref": {"$ref": "https://example.org/schema"},
    "#/$ref ": {"$ref": "other.json#/a"},
    "#/$ref  ": {"$ref": "#anchor"},
    "#/$ref   ": {"$ref": "#/$defs/missing"},
    "#/$schema": {"$schema": "http://json-schema.org/draft-04/schema#"},
    "#/properties/a": {"properties": {"a": {"$id": "https://example.org/a"}}},
    "#/properties/a ": {"properties": {"a": 3}},
}


@pytest.mark.parametrize("place", WRONG)
def test_a_wrong_value_is_refused_with_its_place(place: str) -> None:
    assert f"at {place.strip()}: " in refused(WRONG[place])


def test_a_reference_leads_only_to_what_was_checked() -> None:
    hidden = {"type": "string", "not": {}}
    assert "leads to no schema" in refused({"$ref": "#/default", "default": hidden})
    assert "leads to no schema" in refused({"$ref": "#/examples/0", "examples": [hidden]})
    assert "leads to no schema" in refused({"enum": [hidden], "$ref": "#/enum/0"})


UNSATISFIABLE: tuple[Any, ...] = (
    False,
    {"$ref": "#"},
    {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
    {"type": "string", "minLength": 5, "maxLength": 2},
    {"type": "object", "properties": {"a": False}, "required": ["a"]},
    {"allOf": [{"type": "string"}, {"type": "null"}]},
    {"type": "integer", "enum": ["a"]},
    {"type": "string", "pattern": "^a$", "minLength": 2},
)


@pytest.mark.parametrize("schema", UNSATISFIABLE, ids=str)
def test_a_schema_that_nothing_satisfies_is_refused(schema: Any) -> None:
    assert re.search(r"no (text|output) satisfies|[Uu]nsatisfiable|empty", refused(schema))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is not JSON"),
        ("{'type': 'string'}", "is not JSON"),
        ('{"const": NaN}', "NaN is no JSON number"),
        ('{"type": "string", "type": "null"}', 'the key "type" twice'),
        ('{"const": 1e999}', "JSON cannot express"),
        ('{"const": ' + "9" * 5000 + "}", "too large"),
        ("[]", "must be a JSON object"),
        ('"string"', "must be a JSON object"),
        ('{"const": "\\ud800"}', "lone surrogate"),
    ],
)
def test_text_that_is_no_schema_is_refused(text: str, problem: str) -> None:
    assert problem in refused(text)


def test_values_that_are_no_json_are_refused() -> None:
    endless: dict[str, Any] = {}
    endless["items"] = endless
    shared: Any = {}
    for _ in range(31):
        shared = {"anyOf": [shared, shared]}
    assert "which is not JSON" in refused({"const": object()})
    assert "keys must be strings" in refused({1: "a"})
    assert "too complex" in refused(endless)
    assert "too complex" in refused(shared)


def test_annotations_change_nothing() -> None:
    plain = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "$defs": {"b": {}}}
    annotated = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": "https://example.org/schema",
        "title": "T",
        "type": "object",
        "properties": {
            "a": {"description": "…", "enum": [1, 2], "default": 1, "examples": [1], "title": ""}
        },
        "$defs": {"b": {"$comment": "c", "deprecated": True, "uniqueItems": False}},
        "readOnly": False,
        "discriminator": {"propertyName": "a"},
    }
    assert check_schema(annotated) == check_schema(plain) == plain
    assert StructuredOutputsParams(json=annotated).source == (
        StructuredOutputsParams(json=json.dumps(plain)).source
    )


def test_a_name_may_be_any_keyword() -> None:
    """Keys of ``properties`` and ``$defs`` are no keywords."""
    schema = {
        "type": "object",
        "properties": {"not": {"type": "null"}, "x-guidance": {"$ref": "#/$defs/if"}},
        "$defs": {"if": {"type": "null"}},
    }
    assert check_schema(schema) == schema
    StructuredOutputsParams(json=schema)


def test_true_and_the_empty_schema_take_any_json() -> None:
    assert StructuredOutputsParams(json=True).source == StructuredOutputsParams(json={}).source
