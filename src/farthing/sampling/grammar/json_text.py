"""A JSON schema as it was given, text or Python values, as plain values of bounded size."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from farthing.errors import InvalidParameterError
from farthing.sampling.grammar.limits import MAX_DEPTH, MAX_SOURCE_BYTES
from farthing.sampling.grammar.source_size import require_source_size

# Each level of a schema may be a keyword's list or mapping and the schema inside it.
_MAX_VALUE_DEPTH = 3 * MAX_DEPTH
_MAX_INTEGER = 10**30  # longer ones take quadratic time to read


def schema_values(given: Any) -> dict[str, Any]:
    """``given``, JSON text or a mapping (or True, or False), as a mapping with only JSON in it.

    Raises :class:`InvalidParameterError` for what is not JSON, is nested too deeply, or is longer
    than 64 KiB of text.
    """
    if isinstance(given, str):
        given = _parse(given)
    values = _plain(given, 0, _Budget(MAX_SOURCE_BYTES))
    if values is True:
        return {}
    if values is False:
        _refuse("is false, which no output satisfies")
    if not isinstance(values, dict):
        _refuse(f"must be a JSON object, not {type(given).__name__}")
    require_source_size(json.dumps(values, ensure_ascii=False), _refuse)
    return values


def _parse(text: str) -> Any:
    if len(text) > 2 * MAX_SOURCE_BYTES:  # generous: it may be indented
        _refuse(f"of {len(text):,} characters is too complex; {MAX_SOURCE_BYTES:,} bytes are taken")
    try:
        return json.loads(
            text, object_pairs_hook=_unique, parse_constant=_not_json, parse_int=_integer
        )
    except json.JSONDecodeError as error:
        _refuse(f"is not JSON: {error.msg} at line {error.lineno}, column {error.colno}")
    except RecursionError:
        _refuse(f"is too complex: nested deeper than {MAX_DEPTH} schemas")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        repeated = Counter(name for name, _ in pairs).most_common(1)[0][0]
        _refuse(f"has the key {shown(repeated)} twice in one object")
    return values


def _not_json(name: str) -> NoReturn:
    _refuse(f"is not JSON: {name} is no JSON number")


def _integer(digits: str) -> int:
    if len(digits) > 40:
        _refuse(f"has the number {digits[:20]}…, too large to be kept exactly")
    return int(digits)


class _Budget:
    """Values that may still be read; each takes a byte of text at least."""

    def __init__(self, left: int) -> None:
        self.left = left

    def take(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            _refuse(f"is too complex; at most {MAX_SOURCE_BYTES:,} bytes of text are taken")


def _plain(value: Any, depth: int, budget: _Budget) -> Any:
    budget.take(1)
    if depth > _MAX_VALUE_DEPTH:
        _refuse(f"is too complex: nested deeper than {MAX_DEPTH} schemas")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        budget.take(len(value))
        return str(value)
    if isinstance(value, int):
        if abs(value) > _MAX_INTEGER:
            _refuse("has a number too large to be kept exactly")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            _refuse(f"has the number {value}, which JSON cannot express")
        return float(value)
    if isinstance(value, Mapping):
        result = {}
        for key, item in value.items():
            if not isinstance(key, str):
                _refuse(f"has the key {key!r}; keys must be strings")
            budget.take(len(key))
            result[str(key)] = _plain(item, depth + 1, budget)
        return result
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [_plain(item, depth + 1, budget) for item in value]
    return _refuse(f"has a {type(value).__name__}, which is not JSON")


def shown(value: Any, width: int = 48) -> str:
    """``value`` as JSON for an error message, shortened."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= width else text[: width - 1] + "…"


def _refuse(problem: str) -> NoReturn:
    raise InvalidParameterError(f"structured_outputs: JSON schema {problem}")
