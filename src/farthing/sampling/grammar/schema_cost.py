"""How large a schema may become while llguidance combines its parts.

Where several schemas must hold at once (``allOf``, or ``$ref``, ``anyOf``, ``enum`` beside other
keywords), llguidance writes out their intersection, references resolved: a few hundred bytes can
ask for 2^40 schemas, and then the process is out of memory. So the size of the result is bounded
from above before anything is combined.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from farthing.errors import InvalidParameterError
from farthing.sampling.grammar import keywords
from farthing.sampling.grammar.limits import (
    MAX_COMBINED_SIZE,
    MAX_REFERENCE_DEPTH,
    MAX_TOGETHER,
)

_CEILING = 1 << 62  # sizes stop growing here


class _Cost(NamedTuple):
    """Upper bounds of a schema with its references written out."""

    size: int = 1  # schemas in it
    choices: int = 1  # product of the options on a way from the top down
    depth: int = 1
    recursive: bool = False
    patterns: int = 0  # that must hold of one string at once


def check_cost(schema: Any, resolve: Callable[[Any, str], Any]) -> None:
    """Raises :class:`InvalidParameterError` for a schema that may be combined into too many.

    ``resolve(schema, reference)`` is the schema a ``$ref`` leads to. The schema must be checked.
    """
    _Estimate(schema, resolve).cost(schema, 1)


class _Estimate:
    def __init__(self, root: Any, resolve: Callable[[Any, str], Any]) -> None:
        self._root = root
        self._resolve = resolve
        self._nodes = _count(root)
        self._known: dict[str, _Cost | None] = {}  # by reference; None while it is being followed

    def cost(self, schema: Any, level: int) -> _Cost:
        """Bounds of ``schema``. Visits in llguidance's order, so that ``level`` is its depth."""
        if level > MAX_REFERENCE_DEPTH:
            _refuse(f"schemas and references lead on more than {MAX_REFERENCE_DEPTH} deep")
        if isinstance(schema, bool):
            return _Cost()
        parts: list[_Cost] = []
        group: dict[str, Any] = {}
        types = schema.get("type", keywords.TYPES)
        for keyword, value in schema.items():
            if keyword in keywords.IN_PLACE:
                if group:
                    parts.append(self._plain(group, types, level))
                    group = {}
                parts += self._parts(keyword, value, level)
            elif keyword not in keywords.DEFINITIONS:
                group[keyword] = value
        if group:
            parts.append(self._plain(group, types, level))
        return functools.reduce(self._both, parts) if parts else _Cost()

    def _parts(self, keyword: str, value: Any, level: int) -> list[_Cost]:
        if keyword == "$ref":
            return [self._reference(value, level)]
        if keyword == "allOf":
            return [self.cost(item, level + 1) for item in value]
        if keyword == "const":
            return [_Cost(_count(value), 1, _depth(value))]
        if keyword == "enum":
            return [_Cost(_count(value), len(value), _depth(value))]
        return [_join([self.cost(item, level + 1) for item in value], options=True)]

    def _plain(self, schema: dict[str, Any], types: str | list[str], level: int) -> _Cost:
        """Bounds of keywords that say what values of each type look like."""
        types = [types] if isinstance(types, str) else types
        costs: list[_Cost] = []
        for name in types:
            if name == "array":
                costs += [self.cost(item, level + 1) for item in schema.get("prefixItems", ())]
                if "items" in schema:
                    costs.append(self.cost(schema["items"], level + 1))
            elif name == "object":
                costs += self._object(schema, level)
        own = ("pattern" in schema) + ("format" in schema)
        joined = _join(costs)
        return joined._replace(patterns=max(joined.patterns, own))

    def _object(self, schema: dict[str, Any], level: int) -> list[_Cost]:
        named = [self.cost(item, level + 1) for item in schema.get("properties", {}).values()]
        patterns = [
            self.cost(item, level + 1) for item in schema.get("patternProperties", {}).values()
        ]
        if named and patterns:  # a property whose name fits a pattern must satisfy both
            named = [self._both(_join(named), _join(patterns))]
        if "additionalProperties" in schema:
            patterns.append(self.cost(schema["additionalProperties"], level + 1))
        return [*named, *patterns]

    def _reference(self, reference: str, level: int) -> _Cost:
        if reference in self._known:
            known = self._known[reference]
            return _Cost(self._nodes, 1, 1, recursive=True) if known is None else known
        self._known[reference] = None
        cost = self.cost(self._resolve(self._root, reference), level + 1)
        self._known[reference] = cost
        return cost

    def _both(self, a: _Cost, b: _Cost) -> _Cost:
        if a.recursive and b.recursive:
            _refuse("two schemas that refer to themselves must hold at once")
        if a.recursive or b.recursive:
            endless, finite = (a, b) if a.recursive else (b, a)
            ways = min(endless.choices ** min(finite.depth, 64), _CEILING)
            size = finite.size * ways + endless.size * finite.choices
            choices = ways * finite.choices
        else:
            size = a.size * b.choices + b.size * a.choices
            choices = a.choices * b.choices
        if max(size, choices) > MAX_COMBINED_SIZE:
            _refuse(f"its parts combine into more than {MAX_COMBINED_SIZE:,} schemas")
        patterns = a.patterns + b.patterns
        if patterns > MAX_TOGETHER:
            _refuse(f"more than {MAX_TOGETHER} patterns must hold of a string at once")
        return _Cost(size, choices, max(a.depth, b.depth), a.recursive or b.recursive, patterns)


def _join(costs: list[_Cost], *, options: bool = False) -> _Cost:
    """A schema that has the others in it; ``options``: one of them holds."""
    if not costs:
        return _Cost()
    choices = [cost.choices for cost in costs]
    return _Cost(
        min(1 + sum(cost.size for cost in costs), _CEILING),
        min(sum(choices) if options else max(choices), _CEILING),
        1 + max(cost.depth for cost in costs),
        any(cost.recursive for cost in costs),
        max(cost.patterns for cost in costs),
    )


def _count(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(_count, value.values()))
    if isinstance(value, list):
        return 1 + sum(map(_count, value))
    return 1


def _depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(_depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(_depth, value), default=0)
    return 1


def _refuse(problem: str) -> NoReturn:
    raise InvalidParameterError(f"structured_outputs: JSON schema is too complex: {problem}")
