"""The keywords of JSON Schema: which are enforced, which constrain nothing, which are refused."""

from __future__ import annotations

from typing import Any

from farthing.sampling.grammar.json_text import shown
from farthing.sampling.grammar.limits import MAX_COUNT

TYPES = ("null", "boolean", "number", "integer", "string", "array", "object")
FORMATS = (
    "date-time",
    "time",
    "date",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "uuid",
    "uri",
)
DIALECTS = (
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema",
)

SCHEMA = frozenset({"items", "additionalProperties"})
"""Keywords whose value is a schema."""

SCHEMA_LIST = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
"""Keywords whose value is a list of schemas."""

SCHEMA_MAP = frozenset({"properties", "patternProperties", "$defs", "definitions"})
"""Keywords whose value maps names to schemas."""

DEFINITIONS = ("$defs", "definitions")
IN_PLACE = frozenset({"const", "enum", "allOf", "anyOf", "oneOf", "$ref"})
"""Keywords that hold at once with their neighbours, by intersection."""

COUNTS = frozenset(
    {"minItems", "maxItems", "minProperties", "maxProperties", "minLength", "maxLength"}
)
BOUNDS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})

ANNOTATIONS = frozenset(
    {
        "$comment",
        "$anchor",
        "title",
        "description",
        "default",
        "examples",
        "deprecated",
        "readOnly",
        "writeOnly",
        "contentMediaType",
        "contentEncoding",
        "contentSchema",
        "discriminator",  # of OpenAPI: beside anyOf and oneOf it only helps readers
    }
)
NOT_SUPPORTED = frozenset(
    {
        "not",
        "if",
        "then",
        "else",
        "contains",
        "minContains",
        "maxContains",
        "uniqueItems",
        "propertyNames",
        "dependencies",
        "dependentRequired",
        "dependentSchemas",
        "unevaluatedItems",
        "unevaluatedProperties",
        "additionalItems",
        "id",
        "$dynamicRef",
        "$dynamicAnchor",
        "$recursiveRef",
        "$recursiveAnchor",
        "$vocabulary",
    }
)

_EXACT = 2**53  # whole numbers to here are exact as floating point numbers
_LARGEST = 1e15
_SPLIT_BELOW = 10**9  # a number beside it has enough digits


def type_problem(value: Any) -> str | None:
    """What is wrong with the value of ``type``; of the functions below likewise."""
    names = [value] if isinstance(value, str) else value
    if (
        isinstance(names, list)
        and names
        and all(isinstance(name, str) and name in TYPES for name in names)
        and len(set(names)) == len(names)
    ):
        return None
    return f"{shown(value)} must be one or several of {', '.join(TYPES)}"


def format_problem(value: Any) -> str | None:
    """``format``: only those that are enforced."""
    if isinstance(value, str) and value in FORMATS:
        return None
    return f"{shown(value)} must be one of {', '.join(FORMATS)}"


def count_problem(value: Any) -> str | None:
    """``minItems`` and its like."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        return f"{shown(value)} must be a whole number, 0 or more"
    if value > MAX_COUNT:
        return f"{value} is too complex; at most {MAX_COUNT} is taken"
    return None


def number_problem(value: Any) -> str | None:
    """A bound or a constant: a number that floating point holds as it is written."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return f"{shown(value)} must be a number"
    if abs(value) > (_EXACT if isinstance(value, int) else _LARGEST):
        return f"{shown(value)} is too large to be kept exactly"
    return None


def include_bounds(schema: dict[str, Any]) -> None:
    """Replaces whole exclusive bounds on the side of zero by a number beside them, inclusive.

    llguidance includes such a bound where the other one has the same whole part: 2 in (2, 2.5].
    What it is beside by has the fourteenth digit: a sixteenth llguidance rounds away.
    """
    for exclusive, inclusive, sign, tighter in (
        ("exclusiveMinimum", "minimum", 1, max),
        ("exclusiveMaximum", "maximum", -1, min),
    ):
        bound = schema.get(exclusive)
        if bound is None or bound != int(bound) or not 0 <= sign * bound <= _SPLIT_BELOW:
            continue
        beside = bound + sign * 10.0 ** (len(str(abs(int(bound)))) - 14)
        del schema[exclusive]
        schema[inclusive] = tighter(beside, schema.get(inclusive, beside))


def reference_problem(value: Any) -> str | None:
    """``$ref``: within the document only."""
    if isinstance(value, str) and (value == "#" or value.startswith("#/")):
        return None
    return f"{shown(value)} must be a reference within the schema, #/..."


def multiple_weight(value: int | float) -> int:
    """Digits of a ``multipleOf`` as a whole number: 25 for 0.25, 5 for 5, 500 for 500."""
    if isinstance(value, int) or value.is_integer():
        return int(value)
    digits, _, exponent = f"{value!r}".partition("e")
    whole = digits.replace(".", "")
    return int(whole + "0" * max(int(exponent or "0"), 0))
