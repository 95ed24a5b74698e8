"""Random JSON schemas for property tests: satisfiable, and small enough to be answered quickly."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

Schema = dict[str, Any]

NAMES = st.sampled_from(["a", "b", "id", "name", 'q"uote', "naïve", "水", "x/y~z", "", "new\nline"])
# Answers have no control characters but those that JSON writes in two characters.
UNWRITABLE = {chr(i) for i in (*range(0x20), 0x7F)} - set("\b\t\n\f\r")
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=UNWRITABLE), max_size=6)
PATTERNS = ["^[a-z]{1,4}$", "^(red|green)?$", "ab+c", r"^\d{2}-\w$", '^[^\\s"]{0,3}$', "^é水?$"]
FORMATS = ["date", "time", "date-time", "ipv4", "ipv6", "uuid"]

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-1000, 1000),
    st.sampled_from([0.5, -2.25, 1e-3, 12.125]),
    TEXTS,
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(NAMES, inner, max_size=2)),
    max_leaves=4,
)


@st.composite
def numbers(draw: st.DrawFn) -> Schema:
    integer = draw(st.booleans())
    schema: Schema = {"type": "integer" if integer else "number"}
    low = draw(st.integers(-300, 300))
    low_key = draw(st.sampled_from(["minimum", "exclusiveMinimum"]))
    high_key = draw(st.sampled_from(["maximum", "exclusiveMaximum"]))
    schema |= {low_key: low, high_key: low + draw(st.integers(2, 400))}
    if draw(st.booleans()):
        step = draw(st.sampled_from([1, 2, 3, 7, 10]))
        schema |= {"multipleOf": step, high_key: low + 3 * step + draw(st.integers(1, 50))}
    elif not integer:
        # Otherwise a random model may go on writing digits for very long.
        schema["multipleOf"] = draw(st.sampled_from([0.01, 0.25, 0.5]))
    return schema


@st.composite
def strings(draw: st.DrawFn) -> Schema:
    form = draw(st.sampled_from(["length", "pattern", "format"]))
    if form == "pattern":
        pattern = draw(st.sampled_from(PATTERNS))
        longest = {} if pattern.endswith("$") else {"maxLength": 8}
        return {"type": "string", "pattern": pattern, **longest}
    if form == "format":
        return {"type": "string", "format": draw(st.sampled_from(FORMATS))}
    low = draw(st.integers(0, 3))
    return {"type": "string", "minLength": low, "maxLength": low + draw(st.integers(0, 5))}


@st.composite
def arrays(draw: st.DrawFn, inner: st.SearchStrategy[Schema]) -> Schema:
    schema: Schema = {"type": "array", "items": draw(inner)}
    first = draw(st.lists(inner, max_size=2))
    if first:
        schema["prefixItems"] = first
        schema["items"] = draw(st.one_of(st.just(False), inner))
    low = draw(st.integers(0, max(len(first), 0 if schema["items"] is False else 2)))
    return {**schema, "minItems": low, "maxItems": max(low, 3)}


@st.composite
def objects(draw: st.DrawFn, inner: st.SearchStrategy[Schema]) -> Schema:
    properties = draw(st.dictionaries(NAMES, inner, max_size=3))
    schema: Schema = {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if draw(st.booleans())],
        "additionalProperties": False,
    }
    extra = draw(st.sampled_from(["none", "none", "additional", "pattern"]))
    counted = (
        {} if len(schema["required"]) < len(properties) else {"maxProperties": len(properties) + 1}
    )
    if extra == "additional" and counted:
        schema |= {"additionalProperties": draw(inner), **counted}
    elif extra == "pattern" and counted:
        schema |= {"patternProperties": {"^p[0-9]$": draw(inner)}, **counted}
    return schema


@st.composite
def intersections(draw: st.DrawFn) -> Schema:
    """Several keywords or schemas that must hold at once, and can."""
    low = draw(st.integers(-50, 50))
    return draw(
        st.sampled_from(
            [
                {"allOf": [{"type": "integer", "minimum": low}, {"maximum": low + 5}]},
                {"type": ["integer", "string"], "enum": [low, f"{low}", None, 0.5]},
                {"$ref": "#/$defs/number", "minimum": low, "maximum": low + 9},
                {"maximum": low + 9, "minimum": low, "$ref": "#/$defs/number"},
                {"type": "string", "maxLength": 4, "allOf": [{"pattern": "^a.*b$"}]},
                {"format": "date", "type": "string", "pattern": "^20[0-9]{2}-02"},
                {"type": "string", "anyOf": [{"const": "x"}, {"pattern": "^[yz]$"}]},
                {
                    "allOf": [
                        {"$ref": "#/$defs/named"},
                        {
                            "properties": {
                                "name": True,
                                "age": {"type": "integer", "minimum": 0, "maximum": 99},
                            },
                            "required": ["age"],
                            "additionalProperties": False,
                        },
                    ],
                    "properties": {"name": {"maxLength": 2}, "age": {"minimum": 18}},
                },
                {
                    "oneOf": [
                        {
                            "type": "object",
                            "properties": {"kind": {"const": kind}, "n": {"enum": [low, kind]}},
                            "required": ["kind", "n"],
                            "additionalProperties": False,
                        }
                        for kind in ("p", "q")
                    ]
                },
            ]
        )
    )


leaves = st.one_of(
    numbers(),
    strings(),
    intersections(),
    st.just({"type": "boolean"}),
    st.just({"type": "null"}),
    st.builds(lambda value: {"const": value}, values),
    st.builds(lambda items: {"enum": items}, st.lists(values, min_size=1, max_size=4)),
)


def branches(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    return st.one_of(
        arrays(inner),
        objects(inner),
        st.builds(lambda options: {"anyOf": options}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(
            lambda one, other: {"allOf": [{**one, "title": "one"}, other]},
            inner,
            st.just({"$ref": "#/$defs/anything"}),
        ),
        st.sampled_from(["leaf", "list", "tree"]).map(lambda name: {"$ref": f"#/$defs/{name}"}),
    )


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    """A schema with local definitions, some of which refer to themselves."""
    schema = draw(st.recursive(leaves, branches, max_leaves=5))
    leaf = draw(leaves)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "description": "A random schema.",
        **schema,
        "$defs": {
            "anything": {"description": "Nothing is asked."},
            "leaf": leaf,
            "number": {"type": "integer"},
            "named": {
                "type": "object",
                "properties": {"name": {"type": "string", "maxLength": 3}, "age": True},
                "required": ["name"],
            },
            "list": {
                "type": "array",
                "maxItems": 2,
                "items": {"anyOf": [leaf, {"$ref": "#/$defs/list"}]},
            },
            "tree": {
                "type": "object",
                "properties": {"value": leaf, "next": {"$ref": "#/$defs/tree"}},
                "required": ["value"],
                "additionalProperties": False,
            },
        },
    }
