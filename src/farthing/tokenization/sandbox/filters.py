"""The filters a template may use: those whose cost has a bound, and ``tojson`` as models expect."""

from __future__ import annotations

import functools
import html
import json
from collections.abc import Callable, Iterator
from types import GeneratorType
from typing import Any

from jinja2.filters import FILTERS as JINJA_FILTERS
from jinja2.filters import make_attrgetter
from jinja2.nodes import EvalContext
from jinja2.tests import TESTS

from farthing.errors import ChatTemplateError
from farthing.tokenization.sandbox.budget import (
    MAX_CHARACTERS,
    MAX_ITEMS,
    MAX_WIDTH,
    budget,
    too_big,
)
from farthing.tokenization.sandbox.provenance import as_content, mark, plain, spans
from farthing.tokenization.sandbox.strings import call_method, percent
from farthing.tokenization.sandbox.values import (
    charge_for,
    has_content,
    joined,
    made,
    measure,
    text_of,
)

# Taken from jinja2: they pass elements on or compute numbers; text they make by methods of Text.
_ITERATING = (
    *("batch", "dictsort", "groupby", "items", "list", "map", "max", "min", "reject"),
    *("rejectattr", "select", "selectattr", "slice", "sort", "unique"),
)
_OTHER = ("abs", "attr", "d", "default", "first", "last", "reverse", "truncate")
_JINJA_TESTS: Any = TESTS
_LONGEST_NUMBER = 400  # characters read as a number, places rounded to


def cost(*values: Any) -> int:
    """Steps to read through ``values`` once."""
    total = 1
    for value in values:
        if isinstance(value, str):
            total += len(value) >> 9
        elif isinstance(value, (list, tuple, dict)):
            total += len(value) + (measure(value).weight >> 9)
    return total


def _iterating(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` with what it goes through bounded, its work charged, its result measured."""

    @functools.wraps(function)  # keeps jinja2's mark of which first argument it wants
    def call(*arguments: Any, **named: Any) -> Any:
        budget().charge(2 * cost(*arguments, *named.values()))
        for value in (*arguments, *named.values()):
            if isinstance(value, str) and len(value) > MAX_ITEMS:
                raise too_big(f"a text of {len(value)} characters for {name}", MAX_ITEMS)
            if name in ("batch", "slice") and isinstance(value, int) and value > MAX_ITEMS:
                raise too_big(f"{value} parts", MAX_ITEMS)
        result = function(*arguments, **named)
        return _metered(result) if isinstance(result, GeneratorType) else made(result)

    return call


def _charged(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        budget().charge(2 + cost(*arguments, *named.values()))
        return function(*arguments, **named)

    return call


def _metered(values: Iterator[Any]) -> Iterator[Any]:
    for value in values:
        budget().charge(10)
        yield made(value)


def _number_filter(name: str) -> Callable[..., Any]:
    function = JINJA_FILTERS[name]

    def call(value: Any, *arguments: Any, **named: Any) -> Any:
        for part in (value, *arguments, *named.values()):
            if isinstance(part, str) and len(part) > _LONGEST_NUMBER:
                raise too_big(f"a text of {len(part)} characters for {name}", _LONGEST_NUMBER)
        for part in (*arguments, *named.values()):
            if isinstance(part, int) and abs(part) > _LONGEST_NUMBER:
                raise too_big(f"a number {part} for {name}", _LONGEST_NUMBER)
        return function(value, *arguments, **named)

    return call


def _sum(environment: Any, iterable: Any, attribute: Any = None, start: Any = 0) -> Any:
    if not isinstance(start, (int, float)):
        raise ChatTemplateError("the chat template sums something other than numbers")
    return JINJA_FILTERS["sum"](environment, iterable, attribute, start)


def _method(name: str) -> Callable[..., Any]:
    def call(value: Any, *arguments: Any, **named: Any) -> Any:
        return call_method(text_of(value), name, arguments, named)

    return call


def _trim(value: Any, chars: str | None = None) -> Any:
    return call_method(text_of(value), "strip", (chars,), {})


def _replace(value: Any, old: Any, new: Any, count: int | None = None) -> Any:
    limit = -1 if count is None else count
    return call_method(text_of(value), "replace", (text_of(old), text_of(new), limit), {})


def _center(value: Any, width: int = 80) -> Any:
    return call_method(text_of(value), "center", (width,), {})


def _join(context: EvalContext, value: Any, d: Any = "", attribute: Any = None) -> Any:
    if attribute is not None:
        value = map(make_attrgetter(context.environment, attribute), value)
    return call_method(text_of(d), "join", ([text_of(item) for item in value],), {})


def _title(value: Any) -> str:
    text = text_of(value)
    budget().allocate(2 * len(text))
    titled: str = JINJA_FILTERS["title"](plain(text))
    if len(titled) == len(text):
        return mark(titled, spans(text))
    return as_content(titled) if has_content(text) else titled


def _indent(value: Any, width: Any = 4, first: bool = False, blank: bool = False) -> Any:
    text = text_of(value)
    indention = width if isinstance(width, str) else " " * _bounded_width(width)
    lines = call_method(joined([text, "\n"]), "splitlines", (), {})
    budget().allocate(len(text) + len(indention) * len(lines))
    shown = [
        joined([indention, line]) if (i or first) and (blank or line or not i) else line
        for i, line in enumerate(lines)
    ]
    return call_method("\n", "join", (shown,), {})


def _bounded_width(width: int) -> int:
    if width > MAX_WIDTH:
        raise too_big(f"an indentation of {width}", MAX_WIDTH)
    return width


def _format(value: Any, *arguments: Any, **named: Any) -> str:
    if arguments and named:
        raise ChatTemplateError("the chat template's format has both positions and names")
    return percent(text_of(value), named or arguments)


def _escape(value: Any) -> str:
    text = text_of(value)
    budget().allocate(6 * len(text))
    escaped = html.escape(str.__str__(text)).replace("&quot;", "&#34;").replace("&#x27;", "&#39;")
    return as_content(escaped) if has_content(text) else escaped


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    size = measure(value)
    margin = len(indent) if isinstance(indent, str) else int(indent or 0)
    margin = max(margin * size.depth, *[len(s) for s in separators or ("",)])
    if margin > MAX_WIDTH or size.weight * (1 + margin) > 8 * MAX_CHARACTERS:
        raise too_big("a JSON text that long", MAX_CHARACTERS)
    budget().charge(size.weight >> 4)
    text = json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
    budget().allocate(len(text))
    return as_content(text) if size.has_content else text


def filter_table() -> dict[str, Callable[..., Any]]:
    """All filters by name."""
    return {
        **{name: _iterating(name, JINJA_FILTERS[name]) for name in _ITERATING},
        **{name: _charged(JINJA_FILTERS[name]) for name in _OTHER},
        **{name: _number_filter(name) for name in ("int", "float", "round")},
        **{name: _method(name) for name in ("capitalize", "lower", "upper")},
        "center": _center,
        "count": len,
        "e": _escape,
        "escape": _escape,
        "forceescape": _escape,
        "format": _format,
        "indent": _indent,
        "join": functools.wraps(JINJA_FILTERS["join"])(_join),
        "length": len,
        "replace": _replace,
        "safe": text_of,
        "string": text_of,
        "sum": _iterating("sum", functools.wraps(JINJA_FILTERS["sum"])(_sum)),
        "title": _title,
        "tojson": _tojson,
        "trim": _trim,
    }


def test_table() -> dict[str, Callable[..., Any]]:
    """All of jinja2's tests by name."""
    return {name: _charged(test) for name, test in _JINJA_TESTS.items()}


# The filters below are put into the template by .rewrite; no template can spell their names.


def charge(steps: int) -> bool:
    """Account for the body of a loop or macro; true, to stand in a condition."""
    budget().charge(steps)
    return True


def read(value: Any) -> Any:
    """``value``, charged for being compared."""
    budget().charge(cost(value))
    return value


def slice_of(value: Any, start: Any, stop: Any, step: Any) -> Any:
    """``value[start:stop:step]``."""
    if isinstance(value, str):
        budget().allocate(len(value))
        charge_for(value)
    return made(value[start:stop:step])


def tilde(values: list[Any]) -> str:
    """The operands of ``~``, as text, joined."""
    return joined([text_of(value) for value in values])


REWRITE_FILTERS: dict[str, Callable[..., Any]] = {
    "$charge": charge,
    "$read": read,
    "$slice": slice_of,
    "$tilde": tilde,
    "$made": made,
}
