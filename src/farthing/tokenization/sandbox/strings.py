"""String methods, ``%`` and ``format`` as a template may use them: bounded before they run."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from string import Formatter
from typing import Any

from farthing.errors import ChatTemplateError
from farthing.tokenization.sandbox.budget import (
    MAX_CHARACTERS,
    MAX_ITEMS,
    MAX_WIDTH,
    budget,
    too_big,
)
from farthing.tokenization.sandbox.provenance import Text, as_content, cut
from farthing.tokenization.sandbox.values import charge_for, has_content, joined, made, text_of

_SIMPLE = (
    "capitalize casefold count endswith find format index isalnum isalpha isascii isdecimal "
    "isdigit isidentifier islower isnumeric isprintable isspace istitle isupper join lower "
    "partition removeprefix removesuffix replace startswith swapcase title upper"
)
_PADDING = frozenset({"center", "expandtabs", "ljust", "rjust", "zfill"})
# Searched from the end, or character by character: length times length in the worst case.
_SLOW = frozenset({"lstrip", "rfind", "rindex", "rpartition", "rsplit", "rstrip", "strip"})
_SPLITTING = frozenset({"rsplit", "split", "splitlines"})
STRING_METHODS = frozenset(_SIMPLE.split()) | _PADDING | _SLOW | _SPLITTING

_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
_PERCENT = re.compile(
    r"%(?:\((?P<name>[^()]*)\))?(?P<flags>[-#0 +]*)(?P<width>\*|\d+)?"
    r"(?:\.(?P<precision>\*|\d*))?(?P<kind>.)",
    re.DOTALL,
)


def call_method(text: str, name: str, arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """``text.name(*arguments, **named)``, which must be one of STRING_METHODS but format."""
    if name == "join":
        arguments = [_listed(a) for a in arguments]
    _check_cost(text, name, [*arguments, *named.values()])
    if has_content(text, *arguments, *named.values()):
        method = getattr(text if isinstance(text, Text) else Text(text, ()), name)
    else:
        method = getattr(str(text), name)
    return made(method(*arguments, **named))


def _listed(parts: Any) -> list[Any]:
    if isinstance(parts, str) and len(parts) > MAX_ITEMS:
        raise too_big("a list of that many characters", MAX_ITEMS)
    return list(parts)


def _check_cost(text: str, name: str, arguments: list[Any]) -> None:
    length = len(text)
    strings = [len(a) for a in arguments if isinstance(a, str)]
    if name == "join":
        parts = arguments[0] if arguments else ()
        length = sum([len(part) for part in parts if isinstance(part, str)]) + length * len(parts)
    elif name == "replace" and len(strings) == 2:
        length += max(0, text.count(arguments[0]) * (strings[1] - strings[0]))
    elif name in _PADDING:
        widths = [a for a in arguments if isinstance(a, int)]
        if any(width > MAX_WIDTH for width in widths):
            raise too_big(f"a field {max(widths)} wide", MAX_WIDTH)
        length += text.count("\t") * max(widths, default=8) if name == "expandtabs" else MAX_WIDTH
    if name in _SLOW and length * max(strings, default=1) > 32 * MAX_CHARACTERS:
        raise too_big("a search of that length", 32 * MAX_CHARACTERS)
    if name in _SPLITTING:
        _check_pieces(text, name, arguments)
    budget().allocate(length)
    charge_for(text, *arguments, *(arguments[0] if name == "join" and arguments else ()))


def _check_pieces(text: str, name: str, arguments: list[Any]) -> None:
    if name == "splitlines":
        pieces = sum([text.count(end) for end in _LINE_ENDS])
    elif arguments and isinstance(arguments[0], str) and arguments[0]:
        pieces = text.count(arguments[0])
    else:
        pieces = len(text) if len(text) <= MAX_ITEMS else len(text.split(None, MAX_ITEMS))
    limits = [a for a in arguments if isinstance(a, int) and a >= 0 and name != "splitlines"]
    if min([pieces, *limits]) >= MAX_ITEMS:
        raise too_big("a list of that many pieces", MAX_ITEMS)


def percent(pattern: str, values: Any) -> str:
    """``pattern % values``; characters of the pattern stay the template's."""
    positional = list(values) if isinstance(values, tuple) else [values]
    parts: list[str] = []
    position = 0
    for match in _PERCENT.finditer(pattern):
        budget().charge(20)
        parts.append(cut(pattern, position, match.start()))
        position = match.end()
        name, width, precision = match["name"], match["width"], match["precision"]
        if "*" in (width, precision) or max(int(width or 0), int(precision or 0)) > MAX_WIDTH:
            raise too_big(f"a field like {match[0][:20]!r}", MAX_WIDTH)
        if match["kind"] == "%":
            parts.append("%")
            continue
        if name is not None:
            value = values[name]
        elif positional:
            value = positional.pop(0)
        else:
            raise ChatTemplateError("the chat template's % has too few values")
        if match["kind"] == "s":
            value = text_of(value)
        elif isinstance(value, (list, tuple, dict)):
            raise ChatTemplateError(f"the chat template prints a list or dict as %{match['kind']}")
        specification = "%" + match["flags"] + (width or "")
        specification += ("" if precision is None else "." + precision) + match["kind"]
        if specification == "%s":
            parts.append(value)
        else:
            shown = specification % (str.__str__(value) if isinstance(value, str) else value,)
            parts.append(as_content(shown) if has_content(value) else shown)
    if positional and not isinstance(values, dict):
        raise ChatTemplateError("the chat template's % has too many values")
    parts.append(cut(pattern, position, len(pattern)))
    return joined(parts)


def formatted(
    pattern: str,
    get_field: Callable[[str, Sequence[Any], Mapping[str, Any]], Any],
    arguments: Sequence[Any],
    named: Mapping[str, Any],
) -> str:
    """``pattern.format(*arguments, **named)``; ``get_field`` looks names up in the sandbox."""
    parts: list[str] = []
    automatic = 0
    for literal, field, specification, conversion in Formatter().parse(str.__str__(pattern)):
        budget().charge(20)
        parts.append(literal)
        if field is None:
            continue
        if not field or field[0] in ".[":
            field, automatic = f"{automatic}{field}", automatic + 1
        value = get_field(field, arguments, named)
        if "{" in (specification or ""):
            raise ChatTemplateError("the chat template's format has a field within a field")
        if any(int(digits) > MAX_WIDTH for digits in re.findall(r"\d+", specification or "")):
            raise too_big("a field that wide", MAX_WIDTH)
        if conversion or not isinstance(value, (bool, int, float)):
            value = _converted(value, conversion)
        if not specification:
            parts.append(text_of(value))
        else:
            shown = format(str.__str__(value) if isinstance(value, str) else value, specification)
            parts.append(as_content(shown) if has_content(value) else shown)
    whole = joined(parts)
    return as_content(whole) if has_content(pattern) else whole


def _converted(value: Any, conversion: str | None) -> str:
    text = text_of(value)
    if conversion in (None, "s") or not isinstance(value, str):
        return text
    if conversion not in ("r", "a"):
        raise ChatTemplateError(f"the chat template's format has a conversion {conversion!r}")
    shown = repr(str.__str__(text)) if conversion == "r" else ascii(str.__str__(text))
    return as_content(shown) if has_content(text) else shown
