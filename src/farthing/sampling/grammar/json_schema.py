"""JSON schemas: every keyword is one that is enforced, or one that constrains nothing.

llguidance passes over keywords it does not know, reads some by the draft that ``$schema`` names,
and has settings of its own in ``x-guidance``. So that no part of a schema is ever silently left
out, all of it is checked here, and what llguidance gets says the same without those.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NoReturn
from urllib.parse import unquote

from farthing.errors import InvalidParameterError
from farthing.sampling.grammar import keywords
from farthing.sampling.grammar.formats import PATTERNS
from farthing.sampling.grammar.json_text import schema_values, shown
from farthing.sampling.grammar.limits import (
    MAX_DEPTH,
    MAX_LITERAL_BYTES,
    MAX_MULTIPLE,
    MAX_ONE_OF,
    MAX_PATTERN_PAIRS,
    MAX_PROPERTIES,
    MAX_SCHEMA_WEIGHT,
)
from farthing.sampling.grammar.regex import check_regex
from farthing.sampling.grammar.schema_cost import check_cost
from farthing.sampling.grammar.unwritable import unwritable_in_expression, unwritable_in_text

Place = tuple[str, ...]
"""Keys from the top of the document down."""


def check_schema(given: Any) -> dict[str, Any]:
    """The schema that llguidance is to compile: ``given`` without what constrains nothing.

    Raises :class:`InvalidParameterError` naming the keyword and where it stands.
    """
    schema = schema_values(given)
    reader = _Reader()
    checked = reader.schema(schema, (), 1)
    for place, target in reader.references:
        if target not in reader.places:
            _refuse(place, f"{shown(_pointer(target))} leads to no schema in this one")
    check_cost(checked, _target)
    assert isinstance(checked, dict)
    return checked


def _target(schema: Any, reference: str) -> Any:
    """The schema that a checked ``$ref`` leads to."""
    for step in _steps(reference):
        schema = schema[int(step)] if isinstance(schema, list) else schema[step]
    return schema


def _steps(reference: str) -> Place:
    """The keys of a local reference (RFC 6901, sections 4 and 6)."""
    if reference == "#":
        return ()
    steps = unquote(reference[2:]).split("/")
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in steps)


def _pointer(place: Place) -> str:
    return "/".join(("#", *(step.replace("~", "~0").replace("/", "~1") for step in place)))


@dataclass
class _Reader:
    """Walks the places of a document where a schema stands, and adds up what the whole takes."""

    places: set[Place] = field(default_factory=set)
    references: list[tuple[Place, Place]] = field(default_factory=list)
    properties: int = 0
    pattern_pairs: int = 0
    weight: int = 0
    multiple: int = 0

    def schema(self, value: Any, place: Place, depth: int) -> Any:
        """``value`` without annotations, those of the schemas inside it neither."""
        if depth > MAX_DEPTH:
            _refuse((), f"is too complex: schemas nested deeper than {MAX_DEPTH}")
        self.places.add(place)
        if isinstance(value, bool):
            return value
        if not isinstance(value, dict):
            _refuse(place, f"{shown(value)} must be a schema")
        result = {}
        for keyword, argument in value.items():
            if keyword in ("$schema", "$id"):
                _check_identity(keyword, argument, place)
            elif keyword in keywords.NOT_SUPPORTED and (keyword, argument) != (
                "uniqueItems",
                False,
            ):
                _refuse(place, f"keyword {shown(keyword)} is not supported")
            elif keyword not in keywords.ANNOTATIONS and keyword != "uniqueItems":
                result[keyword] = self._keyword(keyword, argument, (*place, keyword), depth)
        if (pattern := PATTERNS.get(result.get("format", ""))) is not None:
            del result["format"]
            if "pattern" in result:  # both must hold
                result["allOf"] = [*result.get("allOf", ()), {"pattern": pattern}]
            else:
                result["pattern"] = pattern
        keywords.include_bounds(result)
        self.properties += len({*result.get("properties", ()), *result.get("required", ())})
        if self.properties > MAX_PROPERTIES:
            _refuse(place, f"is too complex: more than {MAX_PROPERTIES:,} properties in all")
        return result

    def _keyword(self, keyword: str, value: Any, here: Place, depth: int) -> Any:
        if keyword in keywords.SCHEMA:
            return self.schema(value, here, depth + 1)
        if keyword in keywords.SCHEMA_LIST:
            return self._schema_list(keyword, value, here, depth)
        if keyword in keywords.SCHEMA_MAP:
            return self._schema_map(keyword, value, here, depth)
        if keyword in keywords.COUNTS:
            _check(keywords.count_problem(value), here)
        elif keyword in keywords.BOUNDS:
            _check(keywords.number_problem(value), here)
        elif keyword == "type":
            _check(keywords.type_problem(value), here)
        elif keyword == "format":
            _check(keywords.format_problem(value), here)
        elif keyword == "$ref":
            _check(keywords.reference_problem(value), here)
            self.references.append((here, _steps(value)))
        elif keyword == "const":
            self._constant(value, here)
        elif keyword in ("enum", "required"):
            self._constants(keyword, value, here)
        elif keyword == "pattern":
            self._expression(value, here)
        elif keyword == "multipleOf":
            self._multiple(value, here)
        else:
            _refuse(here[:-1], f"keyword {shown(keyword)} is unknown")
        return value

    def _schema_list(self, keyword: str, value: Any, here: Place, depth: int) -> list[Any]:
        if not isinstance(value, list) or not value:
            _refuse(here, f"{shown(value)} must be a list of at least one schema")
        if keyword == "oneOf" and len(value) > MAX_ONE_OF:
            _refuse(here, f"is too complex: {len(value)} options, at most {MAX_ONE_OF} are taken")
        return [self.schema(item, (*here, str(i)), depth + 1) for i, item in enumerate(value)]

    def _schema_map(self, keyword: str, value: Any, here: Place, depth: int) -> dict[str, Any]:
        if not isinstance(value, dict):
            _refuse(here, f"{shown(value)} must be a mapping from names to schemas")
        if keyword == "patternProperties":
            for expression in value:
                self._expression(expression, here)
            self.pattern_pairs += len(value) * (len(value) - 1) // 2
            if self.pattern_pairs > MAX_PATTERN_PAIRS:
                _refuse(here, "is too complex: too many patterns to show that they are disjoint")
        elif keyword == "properties":
            for name in value:
                self._literal(name, here)
        return {name: self.schema(item, (*here, name), depth + 1) for name, item in value.items()}

    def _constants(self, keyword: str, value: Any, here: Place) -> None:
        if not isinstance(value, list) or (keyword == "enum" and not value):
            _refuse(here, f"{shown(value)} must be a list")
        for item in value:
            if keyword == "required" and not isinstance(item, str):
                _refuse(here, f"{shown(item)} must be the name of a property")
            self._constant(item, here)

    def _constant(self, value: Any, here: Place) -> None:
        if isinstance(value, str):
            self._literal(value, here)
            if here[-1] != "required" and (found := unwritable_in_text(value)) is not None:
                _refuse(here, f"{shown(value)} has {found}, which answers cannot have")
        elif isinstance(value, list):
            for item in value:
                self._constant(item, here)
        elif isinstance(value, dict):
            for name, item in value.items():
                self._literal(name, here)
                self._constant(item, here)
        elif value is not None and not isinstance(value, bool):
            _check(keywords.number_problem(value), here)

    def _literal(self, text: str, here: Place) -> None:
        nbytes = len(text.encode())
        if nbytes > MAX_LITERAL_BYTES:
            _refuse(here, f"is too complex: a string of more than {MAX_LITERAL_BYTES:,} bytes")
        self._add(nbytes, here)

    def _expression(self, value: Any, here: Place) -> None:
        if not isinstance(value, str):
            _refuse(here, f"{shown(value)} must be a regular expression")
        if (found := unwritable_in_expression(value)) is not None:
            _refuse(here, f"{shown(value)} asks for {found}, which answers cannot have")
        self._add(check_regex(value, f"JSON schema at {_pointer(here)}:").most, here)

    def _add(self, weight: int, here: Place) -> None:
        self.weight += weight
        if self.weight > MAX_SCHEMA_WEIGHT:
            _refuse(
                here,
                f"is too complex: more than {MAX_SCHEMA_WEIGHT:,} characters of strings and "
                "patterns in all",
            )

    def _multiple(self, value: Any, here: Place) -> None:
        _check(keywords.number_problem(value), here)
        if value <= 0:
            _refuse(here, f"{shown(value)} must be more than 0")
        self.multiple += keywords.multiple_weight(value)
        if self.multiple > MAX_MULTIPLE:
            _refuse(here, f"{shown(value)} is too complex: more than {MAX_MULTIPLE:,} in all")


def _check_identity(keyword: str, value: Any, place: Place) -> None:
    if place:
        _refuse(place, f"keyword {shown(keyword)} is supported only at the top")
    if not isinstance(value, str):
        _refuse((keyword,), f"{shown(value)} must be a string")
    if keyword == "$schema" and value.rstrip("#") not in keywords.DIALECTS:
        _refuse((keyword,), f"{shown(value)} must be one of {', '.join(keywords.DIALECTS)}")


def _check(problem: str | None, here: Place) -> None:
    if problem is not None:
        _refuse(here, problem)


def _refuse(place: Place, problem: str) -> NoReturn:
    pointer = _pointer(place)
    pointer = pointer if len(pointer) <= 80 else f"{pointer[:79]}…"
    raise InvalidParameterError(f"structured_outputs: JSON schema at {pointer}: {problem}")
