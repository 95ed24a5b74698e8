"""Strings that know which of their characters came from messages.

A template mixes its own text, where ``<|im_end|>`` is a control token, with text from messages,
where it is eight letters somebody typed. :class:`Text` carries that difference through the string
operations a template can do; a plain ``str`` is all the template's. Where an operation cannot say
exactly which characters came from where, all of its result counts as content: a control token of
the template may then be lost, but content never becomes one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Any, SupportsIndex

Spans = tuple[tuple[int, int], ...]
_FIRST, _LAST = itemgetter(0), itemgetter(1)


class Text(str):
    """A string with ``content``: the ascending, disjoint ranges that came from messages."""

    __slots__ = ("content",)
    content: Spans

    def __new__(cls, value: str, content: Spans) -> Text:
        """``value`` with ``content``."""
        text = super().__new__(cls, value)
        text.content = content
        return text

    def __str__(self) -> str:
        """Itself: ``str()`` must not lose the ranges."""
        return self

    def __add__(self, other: str) -> str:
        return concat((self, other)) if isinstance(other, str) else NotImplemented

    def __radd__(self, other: str) -> str:
        return concat((other, self)) if isinstance(other, str) else NotImplemented

    def __mul__(self, count: SupportsIndex) -> str:
        return concat([self] * count.__index__())

    __rmul__ = __mul__

    def __mod__(self, values: Any) -> str:
        return as_content(plain(self) % values)

    def __rmod__(self, other: str) -> str:
        return as_content(other % (plain(self),)) if isinstance(other, str) else NotImplemented

    def __format__(self, spec: str) -> str:
        return as_content(format(plain(self), spec))

    def __getitem__(self, key: SupportsIndex | slice) -> str:
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            if step == 1:
                return cut(self, start, max(start, stop))
            return as_content(str.__getitem__(self, key)) if self.content else plain(self)[key]
        index = range(len(self))[key]
        return cut(self, index, index + 1)

    def __iter__(self) -> Iterator[str]:
        spans = iter(self.content)
        start, stop = next(spans, (len(self), len(self)))
        for i, character in enumerate(plain(self)):
            if i == stop:
                start, stop = next(spans, (len(self), len(self)))
            yield Text(character, ((0, 1),)) if start <= i else character

    def strip(self, chars: str | None = None, /) -> str:
        return self.lstrip(chars).rstrip(chars)

    def lstrip(self, chars: str | None = None, /) -> str:
        return cut(self, len(self) - len(super().lstrip(chars)), len(self))

    def rstrip(self, chars: str | None = None, /) -> str:
        return cut(self, 0, len(super().rstrip(chars)))

    def removeprefix(self, prefix: str, /) -> str:
        return cut(self, len(self) - len(super().removeprefix(prefix)), len(self))

    def removesuffix(self, suffix: str, /) -> str:
        return cut(self, 0, len(super().removesuffix(suffix)))

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        return self._pieces(super().split(sep, maxsplit), sep)

    def rsplit(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        return self._pieces(super().rsplit(sep, maxsplit), sep)

    def splitlines(self, keepends: bool = False) -> list[str]:
        position, lines = 0, []
        for line, whole in zip(
            super().splitlines(), super().splitlines(keepends=True), strict=True
        ):
            lines.append(cut(self, position, position + len(whole if keepends else line)))
            position += len(whole)
        return lines

    def partition(self, sep: str, /) -> tuple[str, str, str]:
        return self._three(super().partition(sep))

    def rpartition(self, sep: str, /) -> tuple[str, str, str]:
        return self._three(super().rpartition(sep))

    def replace(self, old: str, new: str, count: SupportsIndex = -1, /) -> str:
        if not old or self.content == ((0, len(self)),):
            return as_content(super().replace(old, new, count))
        return Text(new, spans(new)).join(self.split(old, count))

    def join(self, parts: Iterable[str], /) -> str:
        joined: list[str] = []
        for part in parts:
            joined += (self, part)
        return concat(joined[1:])

    def upper(self) -> str:
        return self._same_length(super().upper())

    def lower(self) -> str:
        return self._same_length(super().lower())

    def casefold(self) -> str:
        return self._same_length(super().casefold())

    def swapcase(self) -> str:
        return self._same_length(super().swapcase())

    def capitalize(self) -> str:
        return self._same_length(super().capitalize())

    def title(self) -> str:
        return self._same_length(super().title())

    def center(self, width: SupportsIndex, fill: str = " ", /) -> str:
        return as_content(super().center(width, fill))

    def ljust(self, width: SupportsIndex, fill: str = " ", /) -> str:
        return as_content(super().ljust(width, fill))

    def rjust(self, width: SupportsIndex, fill: str = " ", /) -> str:
        return as_content(super().rjust(width, fill))

    def zfill(self, width: SupportsIndex, /) -> str:
        return as_content(super().zfill(width))

    def expandtabs(self, tabsize: SupportsIndex = 8) -> str:
        return as_content(super().expandtabs(tabsize))

    def _same_length(self, changed: str) -> str:
        # Changing case never makes a character shorter, so equal lengths mean equal positions.
        return mark(changed, self.content) if len(changed) == len(self) else as_content(changed)

    def _pieces(self, pieces: list[str], sep: str | None) -> list[str]:
        position, cuts = 0, []
        for piece in pieces:
            if sep is None:
                position = self.find(piece, position)
            cuts.append(cut(self, position, position + len(piece)))
            position += len(piece) + (0 if sep is None else len(sep))
        return cuts

    def _three(self, parts: tuple[str, str, str]) -> tuple[str, str, str]:
        first, second = len(parts[0]), len(parts[0]) + len(parts[1])
        return cut(self, 0, first), cut(self, first, second), cut(self, second, len(self))


def plain(text: str) -> str:
    """``text`` without its ranges."""
    return str.__str__(text)


def mark(text: str, content: Spans) -> str:
    """``text`` with ``content`` as its ranges."""
    return Text(text, content) if content else plain(text)


def as_content(text: str) -> str:
    """``text``, all of it from messages."""
    return mark(text, ((0, len(text)),) if text else ())


def spans(text: str) -> Spans:
    """The ranges of ``text`` that came from messages."""
    return text.content if isinstance(text, Text) else ()


def cut(text: str, start: int, stop: int) -> str:
    """``text[start:stop]`` for ``0 <= start <= stop <= len(text)``."""
    content = spans(text)
    # A long chat has many ranges, and is cut into many pieces.
    touched = content[
        bisect_right(content, start, key=_LAST) : bisect_left(content, stop, key=_FIRST)
    ]
    inside = tuple((max(a, start) - start, min(b, stop) - start) for a, b in touched)
    return mark(plain(text)[start:stop], inside if start < stop else ())


def concat(parts: Iterable[str]) -> str:
    """The parts joined."""
    parts = list(parts)
    content: list[tuple[int, int]] = []
    position = 0
    for part in parts:
        for start, stop in spans(part):
            if content and content[-1][1] == position + start:
                content[-1] = (content[-1][0], position + stop)
            else:
                content.append((position + start, position + stop))
        position += len(part)
    return mark("".join(parts), tuple(content))
