"""JSON of a file, read step by step: strict (RFC 8259), and bounded in depth, memory and time.

The parser is ours because the file is hostile until it has been read: ``json.loads`` makes up to
thirty bytes of objects of each byte, keeps the last of two equal keys, reads ``NaN``, lone
surrogates and numbers of any length, and runs out of stack in deep nests.
"""

from __future__ import annotations

import json.decoder
import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from farthing.errors import ModelFormatError

MAX_DEPTH = 64
MAX_STRING = 4 << 20  # bytes of one string; chat templates and licences are far shorter
MAX_NUMBER = 1000  # characters; a double in full has 25
MAX_MEMORY = 36 << 20  # bytes of the values alive at a time

_CONTAINER = 192  # twice what an empty list or object takes: so does making one, in time
_MEMBER = 64  # bytes for each member of an object, key and value apart
_ELEMENT = 16  # bytes a list takes for each element, the element apart
_NUMBER = 48  # so does what is not made again: it takes its time
_ESCAPES = 64  # for a string that has some: the time of undoing them
_SHARED_STRINGS = 1024  # equal strings, such as dtypes and file names, are kept once

# Atomic groups, not possessive quantifiers: Python before 3.11.5 matches those of groups wrongly.
_SPACES = rb"(?>[ \t\n\r]*)"
_TEXT = rb'"((?>[^"\\\x00-\x1f]*))((?>(?:\\[^\x00-\x1f](?>[^"\\\x00-\x1f]*))*))"'
_WHOLE = rb"-?(?:0|[1-9](?>[0-9]*))"
_FRACTION = rb"(?>(?:\.(?>[0-9]+))?)"
_EXPONENT = rb"(?>(?:[eE][-+]?(?>[0-9]+))?)"
_SHORT = rb"(?:0|[1-9](?>[0-9]{0,17}))"
_SPACE = re.compile(_SPACES)
_OPEN = re.compile(_SPACES + rb"\{" + _SPACES + rb"(\})?")
_KEY = re.compile(_SPACES + _TEXT + _SPACES + rb":")
_VALUE = re.compile(
    rb"%s(?:%s|(%s(%s%s))|(\{)|(\[)|(true|false|null))"
    % (_SPACES, _TEXT, _WHOLE, _FRACTION, _EXPONENT)
)
_INTEGERS = re.compile(rb"\[(%s(?>(?:, ?%s){0,63}))\]" % (_SHORT, _SHORT))
_NEXT = re.compile(_SPACES + rb"([,}\]])")
_CONSTANTS = {b"true": True, b"false": False, b"null": None}
_scan_string = json.decoder.scanstring  # type: ignore[attr-defined]  # its types leave it out
_FOREIGN = re.compile(rb"-?(?:NaN|Infinity)")


class JsonCursor:
    """A place in JSON text, moved over one value at a time.

    ``raw`` starts at byte ``base`` of ``path``; errors (:class:`ModelFormatError`, field ``JSON``)
    name the byte of the file. Values alive at a time may take ``MAX_MEMORY`` bytes.
    """

    def __init__(self, path: Path, raw: bytes, base: int = 0) -> None:
        self.path = path
        self.raw = raw
        self.base = base
        self.at = 0
        self._depth = 0
        self._left = MAX_MEMORY
        self._shared: dict[str, str] = {}
        if raw.startswith(b"\xef\xbb\xbf"):
            self.fail("starts with a byte-order mark, which is not JSON", 0)

    def fail(self, problem: str, at: int | None = None) -> NoReturn:
        """Raises the error at byte ``at`` of the text, or at the next one that is no space."""
        if at is None:
            at = self._skip_space()
        raise ModelFormatError(self.path, problem, field="JSON", offset=self.base + at)

    def only_object(self) -> dict[str, object]:
        """The object that is all of the text."""
        values: dict[str, object] = {}
        for key, _ in self.only_members(values):
            values[key] = self.value()
        return values

    def only_members(self, into: dict[str, object] | None = None) -> Iterator[tuple[str, int]]:
        """As :meth:`members`, of the object that is all of the text."""
        if not self.raw.startswith(b"{", self._skip_space()):
            whole = _VALUE.match(self.raw)
            self.fail("is not a JSON object" if whole else self._not_a_value())
        yield from self.members(into)
        if self._skip_space() != len(self.raw):
            self.fail("is not JSON (more text after its end)")

    def members(self, into: dict[str, object] | None = None) -> Iterator[tuple[str, int]]:
        """Keys of the object at the cursor, and the byte of the file at which each starts.

        Whoever iterates moves the cursor over the value before asking for the next key. ``into``:
        where they put the values by key, which saves keeping the keys twice.
        """
        start = _OPEN.match(self.raw, self.at)
        if start is None:
            self.fail("is not JSON (an object is expected)")
        self.at = start.end()
        self._spend(_CONTAINER)
        if start[1]:
            return
        self._enter()
        keys: set[str] | dict[str, object] = set() if into is None else into
        while True:
            match = _KEY.match(self.raw, self.at)
            if match is None:
                self.fail(self._not_text("a key and a colon are expected"))
            key = self._text(match, 1)
            if key in keys:
                self.fail(f"has a duplicate key {key[:80]!r}", match.start(1) - 1)
            if isinstance(keys, set):
                keys.add(key)
            self._spend(_MEMBER)
            self.at = match.end()
            yield key, self.base + match.start(1) - 1
            if self._next(b"}"):
                self._depth -= 1
                return

    def value(self) -> object:
        """The value at the cursor, which moves past it."""
        match = _VALUE.match(self.raw, self.at)
        if match is None:
            self.fail(self._not_a_value())
        kind = match.lastindex
        if kind == 2:
            self.at = match.end()
            return self._text(match, 1)
        if kind == 3:
            return self._number(match)
        if kind == 5:
            values: dict[str, object] = {}
            for key, _ in self.members(values):
                values[key] = self.value()
            return values
        if kind == 6:
            return self._integers(match.start(6)) or list(self.elements())
        self._spend(_NUMBER)
        self.at = match.end()
        return _CONSTANTS[match[7]]

    def elements(self) -> Iterator[object]:
        """The elements of the list at the cursor."""
        if not self.raw.startswith(b"[", self._skip_space()):
            self.fail("is not JSON (a list is expected)")
        self.at = self._skip_space() + 1
        self._spend(_CONTAINER)
        if self.raw.startswith(b"]", self._skip_space()):
            self.at = self._skip_space() + 1
            return
        self._enter()
        while True:
            self._spend(_ELEMENT)
            yield self.value()
            if self._next(b"]"):
                self._depth -= 1
                return

    def _integers(self, at: int) -> list[int] | None:
        """The list of short integers at ``at``, read at once; None if it is any other list."""
        match = _INTEGERS.match(self.raw, at)
        if match is None:
            return None
        numbers = match[1].split(b",")
        self._spend(_CONTAINER + (_ELEMENT + _NUMBER) * len(numbers))
        self.at = match.end()
        return [int(number) for number in numbers]

    def forget(self) -> None:
        """Tells that the values so far are no longer kept."""
        self._left = MAX_MEMORY

    def _skip_space(self) -> int:
        match = _SPACE.match(self.raw, self.at)
        assert match is not None  # it matches nothing, too
        return match.end()

    def _next(self, end: bytes) -> bool:
        """Moves past a comma (False) or ``end`` (True)."""
        match = _NEXT.match(self.raw, self.at)
        if match is None or match[1] not in (b",", end):
            self.fail(f"is not JSON (a comma or {end.decode()} is expected)")
        self.at = match.end()
        return match[1] == end

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self.fail(f"is nested deeper than {MAX_DEPTH}", self.at - 1)

    def _spend(self, nbytes: int) -> None:
        self._left -= nbytes
        if self._left < 0:
            self.fail(f"holds values of more than {MAX_MEMORY >> 20} MiB")

    def _text(self, match: re.Match[bytes], group: int) -> str:
        """The string whose plain beginning and rest from the first escape on are two groups."""
        start, end = match.start(group), match.end(group + 1)
        if end - start > MAX_STRING:
            self.fail(f"has a string of {end - start} bytes, more than {MAX_STRING}", start - 1)
        try:
            if match.end(group) == end:
                text = str(match[group], "utf-8")
            else:
                self._spend(_ESCAPES)
                text = self._unescaped(start, end)
        except UnicodeDecodeError as error:
            self.fail(f"is not UTF-8 ({error.reason})", start + error.start)
        if len(self._shared) < _SHARED_STRINGS:
            known = self._shared.setdefault(text, text)
        else:
            known = self._shared.get(text, text)
        self._spend(sys.getsizeof(text) if known is text else _NUMBER)
        return known

    def _unescaped(self, start: int, end: int) -> str:
        quoted = str(self.raw[start - 1 : end + 1], "utf-8")
        try:
            text: str = _scan_string(quoted, 1)[0]
            text.encode()
        except json.JSONDecodeError as error:
            at = start - 1 + len(quoted[: error.pos].encode())
            self.fail(f"is not JSON ({error.msg})", at)
        except UnicodeEncodeError:
            self.fail("has a string with a lone surrogate, which is not Unicode", start - 1)
        return text

    def _number(self, match: re.Match[bytes]) -> int | float:
        start, end = match.span(3)
        if end - start > MAX_NUMBER:
            self.fail(f"has a number of {end - start} characters, more than {MAX_NUMBER}", start)
        self._spend(_NUMBER)
        self.at = end
        if not match[4]:
            return int(match[3])
        number = float(match[3])
        if not math.isfinite(number):
            self.fail(f"has {match[3].decode()}, which is larger than a double can be", start)
        return number

    def _not_a_value(self) -> str:
        foreign = _FOREIGN.match(self.raw, self._skip_space())
        if foreign is not None:
            return f"has {foreign[0].decode()}, which is not JSON"
        return self._not_text("a value is expected")

    def _not_text(self, expected: str) -> str:
        at = self._skip_space()
        if at >= len(self.raw):
            return "is not JSON (it ends too early)"
        try:
            str(self.raw[at : at + 1], "ascii")
        except UnicodeDecodeError:
            return "is not UTF-8 JSON"
        if self.raw[at : at + 1] == b'"':
            return f"is not JSON (a string without its end or with a control character; {expected})"
        return f"is not JSON ({expected})"
