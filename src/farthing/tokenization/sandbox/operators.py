"""``+ - * / // % **`` between the values of a template, bounded before they are done."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from farthing.errors import ChatTemplateError
from farthing.tokenization.sandbox.budget import (
    MAX_CHARACTERS,
    MAX_INTEGER_BITS,
    MAX_ITEMS,
    budget,
    too_big,
)
from farthing.tokenization.sandbox.provenance import as_content, concat, plain, spans
from farthing.tokenization.sandbox.strings import percent
from farthing.tokenization.sandbox.values import bounded_integer, has_content, joined, made, measure

_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
}
BINARY_OPERATORS = frozenset(_OPERATORS)


def binary(symbol: str, left: Any, right: Any) -> Any:
    """``left symbol right``. Raises ChatTemplateError if the result would be too big."""
    budget().charge(2)
    if symbol == "+":
        if isinstance(left, str) and isinstance(right, str):
            return joined([left, right])
        if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
            _check_items(len(left) + len(right))
            return made(_native(left) + _native(right))
    elif symbol == "%" and isinstance(left, str):
        return percent(left, right)
    elif symbol == "*":
        if isinstance(right, (str, list, tuple)) and isinstance(left, int):
            left, right = right, left
        if isinstance(right, int) and isinstance(left, str):
            budget().allocate(len(left) * max(0, right))
            return _repeated(left, right)
        if isinstance(right, int) and isinstance(left, (list, tuple)):
            _check_items(len(left) * max(0, right))
            if measure(left).weight * max(0, right) > MAX_CHARACTERS:
                raise too_big("a list of that many characters and items", MAX_CHARACTERS)
            return made(_native(left) * right)
    result = _OPERATORS[symbol](_number(left), _exponent(left, right, symbol))
    return bounded_integer(result) if isinstance(result, int) else result


def _repeated(text: str, count: int) -> str:
    if not has_content(text):
        return plain(text) * count
    if spans(text) == ((0, len(text)),):
        return as_content(plain(text) * count)
    budget().charge(20 * max(0, count))
    return concat([text] * count)


def _native(values: Any) -> Any:
    return list(values) if isinstance(values, list) else tuple(values)


def _check_items(count: int) -> None:
    if count > MAX_ITEMS:
        raise too_big(f"a list of {count} items", MAX_ITEMS)


def _number(value: Any) -> Any:
    return bounded_integer(value) if isinstance(value, int) else value


def _exponent(left: Any, right: Any, symbol: str) -> Any:
    if (
        symbol == "**"
        and isinstance(left, int)
        and isinstance(right, int)
        and left.bit_length() * abs(right) > 2 * MAX_INTEGER_BITS
    ):
        raise ChatTemplateError("the chat template raises a number to too high a power")
    return _number(right)
