"""The values a template works with: JSON-like, measured, and printable only within bounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from jinja2.runtime import Undefined

from farthing.errors import ChatTemplateError
from farthing.tokenization.sandbox.budget import (
    MAX_CHARACTERS,
    MAX_DEPTH,
    MAX_INTEGER_BITS,
    MAX_ITEMS,
    budget,
    too_big,
)
from farthing.tokenization.sandbox.provenance import Text, as_content, concat, spans


class Size(NamedTuple):
    """Characters and items in a value with all it contains, its depth, and any content in it."""

    weight: int
    depth: int
    has_content: bool


class Items(list[Any]):
    """A list that knows its size: containers may hold one another many times over."""

    size: Size


class Fields(dict[Any, Any]):
    """A dict that knows its size."""

    size: Size


class Group(tuple[Any, ...]):
    """A tuple that knows its size."""

    size: Size


for _kind, _name in ((Items, "list"), (Fields, "dict"), (Group, "tuple")):
    _kind.__name__, _kind.__module__ = _name, "builtins"  # what errors of templates call them

_SCALAR = Size(1, 0, False)


def measure(value: Any) -> Size:
    """Size of a value; of a container made here without looking inside again."""
    if isinstance(value, str):
        return Size(len(value) + 1, 0, isinstance(value, Text) and bool(value.content))
    if isinstance(value, (Items, Fields, Group)):
        return value.size
    if isinstance(value, (list, tuple)):
        return _total(value)
    if isinstance(value, dict):
        return _total([*value.keys(), *value.values()])
    return _SCALAR


def _total(values: Iterable[Any]) -> Size:
    sizes = [measure(value) for value in values]
    weight = 1 + sum([size.weight for size in sizes])
    depth = 1 + max([size.depth for size in sizes], default=0)
    if depth > MAX_DEPTH:
        raise too_big("nested lists or dicts", MAX_DEPTH)
    if weight > MAX_CHARACTERS:
        raise too_big("a list or dict of that many characters and items", MAX_CHARACTERS)
    budget().charge(1 + 2 * len(sizes))
    return Size(weight, depth, any(size.has_content for size in sizes))


def has_content(*values: Any) -> bool:
    """Whether any character in ``values`` came from messages."""
    return any(measure(value).has_content for value in values)


def made(value: Any) -> Any:
    """``value``, measured if it is a container: every new container passes here."""
    kind = type(value)
    if kind not in (list, dict, tuple):
        return value
    if len(value) > MAX_ITEMS:
        raise too_big(f"a list or dict of {len(value)} items", MAX_ITEMS)
    size = measure(value)
    container: Items | Fields | Group
    if kind is list:
        container = Items(value)
    elif kind is dict:
        container = Fields(value)
    else:
        container = Group(value)
    container.size = size
    return container


def taken_in(value: Any) -> Any:
    """A copy of a JSON-like value from outside, its strings (keys too) marked as content."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ChatTemplateError(
                "a message has a lone surrogate; text must be Unicode"
            ) from None
        return as_content(str.__str__(value))
    if value is None or isinstance(value, (bool, float)):
        return value
    if isinstance(value, int):
        return bounded_integer(value)
    if isinstance(value, Mapping):
        return made({taken_in(key): taken_in(item) for key, item in value.items()})
    if isinstance(value, (list, tuple)):
        return made([taken_in(item) for item in value])
    raise ChatTemplateError(
        f"messages may hold text, numbers, lists and dicts, not {type(value).__name__}"
    )


def bounded_integer(value: int) -> int:
    """``value``. Raises ChatTemplateError if its arithmetic could take long."""
    if value.bit_length() > MAX_INTEGER_BITS:
        raise too_big(f"an integer of {value.bit_length()} bits", MAX_INTEGER_BITS)
    return value


def charge_for(*texts: Any) -> None:
    """Account for going through the ranges of ``texts`` once."""
    budget().charge(4 * sum([len(spans(text)) for text in texts if isinstance(text, Text)]))


def joined(parts: list[str]) -> str:
    """``parts`` joined, accounted for."""
    budget().allocate(sum([len(part) for part in parts]))
    charge_for(*parts)
    return concat(parts)


def text_of(value: Any) -> str:
    """What printing ``value`` gives: as ``str``, content kept apart, objects refused."""
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, (bool, int, float, range, Undefined)):
        return str(value)
    if isinstance(value, (list, tuple, dict)):
        budget().allocate(measure(value).weight)
        return concat(_printed(value))
    raise ChatTemplateError(f"the chat template prints a {type(value).__name__}")


def _printed(value: Any) -> list[str]:
    budget().charge(4)
    if isinstance(value, str):
        return [as_content(repr(value)) if has_content(value) else repr(value)]
    if isinstance(value, dict):
        parts = ["{"]
        for key, item in value.items():
            parts += (*_printed(key), ": ", *_printed(item), ", ")
        return [*parts[: -1 if value else None], "}"]
    if isinstance(value, (list, tuple)):
        first, last = ("[", "]") if isinstance(value, list) else ("(", ")")
        parts = [first]
        for item in value:
            parts += (*_printed(item), ", ")
        if isinstance(value, tuple) and len(value) == 1:
            return [*parts[:-1], ",", last]
        return [*parts[: -1 if value else None], last]
    return [text_of(value)]
