"""A ``tokenizer.json`` that nobody vouches for, judged before a library builds anything of it.

The library makes of the file what it says: a table as long as the largest id, an automaton of all
added tokens, text that grows with every step of a normalizer, patterns that never end. What is
checked here bounds all of these. Vocabulary and merges are only stepped over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from farthing.errors import ModelFormatError
from farthing.files.json_cursor import JsonCursor
from farthing.files.reader import FileReader
from farthing.tokenization.pattern_limits import PatternError, check_pattern

MAX_FILE = 96 << 20  # bytes; the largest known has 34 MB
MAX_ID = (1 << 21) - 1  # eight times the largest known vocabulary
MAX_ENTRIES = 1 << 22  # of the vocabulary, and of the merges
MAX_ADDED_TEXT = 1 << 20  # characters of all added tokens
MAX_COMPONENTS = 64
MAX_TEXT = 1024  # characters of a component's parameter
MAX_TEMPLATE_IDS = 64
MAX_GROWTH = 128  # bytes a normalizer may make of one

_RUN = 4096
# Atomic groups, not possessive quantifiers: Python before 3.11.5 matches those of groups wrongly.
_W = rb"(?>[ \t\n\r]*)"
_S = rb'"(?>(?:(?>[^"\\\x00-\x1f]+)|\\[^\x00-\x1f])*)"'
_N = rb"-?(?>[0-9]+)(?:\.(?>[0-9]+))?(?:[eE][-+]?(?>[0-9]+))?"
_STEPS = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
_NESTED = ("normalizers", "pretokenizers", "processors", "decoders")
# Most bytes that normalization makes of one byte of UTF-8 (U+0390 and U+FDFA are the worst).
_GROWTH = {"NFC": 3, "NFD": 3, "NFKC": 11, "NFKD": 11, "Precompiled": 11, "Lowercase": 3,
           "BertNormalizer": 9, "ByteLevel": 2}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Elements:
    """How elements of a list or an object look, and what to call them."""

    what: str
    run: re.Pattern[bytes]
    last: re.Pattern[bytes]


def _elements(what: str, element: bytes, end: bytes) -> _Elements:
    run = b"(?>(?:%s%s%s,){0,%d})" % (_W, element, _W, _RUN)
    return _Elements(what, re.compile(run), re.compile(_W + element + _W + end))


_PAIR = rb"\[" + _W + _S + _W + rb"," + _W + _S + _W + rb"\]"
_SHAPES = {
    ("vocab", b"{"): _elements(
        "a token and an id of at most seven digits",
        _S + _W + rb":" + _W + rb"(?>[0-9]{1,7})",
        rb"\}",
    ),
    ("vocab", b"["): _elements(
        "a token and its score", rb"\[" + _W + _S + _W + rb"," + _W + _N + _W + rb"\]", rb"\]"
    ),
    ("merges", b"["): _elements("two tokens", rb"(?:" + _S + rb"|" + _PAIR + rb")", rb"\]"),
}
_OPENING = re.compile(_W + rb"([\[{])")
_EMPTY = {b"[": re.compile(_W + rb"\]"), b"{": re.compile(_W + rb"\}")}


def read_tokenizer_json(path: Path) -> bytes:
    """The bytes of ``path``, safe to give to the ``tokenizers`` library.

    Raises :class:`ModelFormatError` naming field and byte, and what :class:`FileReader` raises.
    """
    reader = FileReader(path)
    if reader.size > MAX_FILE:
        raise ModelFormatError(path, f"has {reader.size} bytes, more than {MAX_FILE}", offset=0)
    raw = reader.read(0, reader.size)
    cursor = JsonCursor(path, raw)
    judge = _Judge(path)
    for key, at in cursor.only_members():
        judge.at = at
        if key == "model":
            for name, place in cursor.members():
                if name in ("vocab", "merges"):
                    _step_over(cursor, name)
                else:
                    judge.at = place
                    judge.model(name, cursor.value())
        elif key == "added_tokens":
            judge.added_tokens(cursor.value())
        elif key in _STEPS:
            judge.steps(key, cursor.value())
        else:
            cursor.value()
        cursor.forget()
    return raw


def _step_over(cursor: JsonCursor, name: str) -> None:
    """Moves the cursor over vocabulary or merges, whose elements need no more than a look."""
    opening = _OPENING.match(cursor.raw, cursor.at)
    shape = None if opening is None else _SHAPES.get((name, opening[1]))
    if opening is None or shape is None:
        cursor.fail(f"model.{name} is not what it must be")
    cursor.at = opening.end()
    empty = _EMPTY[opening[1]].match(cursor.raw, cursor.at)
    if empty is not None:
        cursor.at = empty.end()
        return
    for _ in range(MAX_ENTRIES // _RUN + 1):
        run = shape.run.match(cursor.raw, cursor.at)
        if run is None or run.end() == cursor.at:
            break
        cursor.at = run.end()
    else:
        cursor.fail(f"model.{name} has more than {MAX_ENTRIES} elements")
    last = shape.last.match(cursor.raw, cursor.at)
    if last is None:
        cursor.fail(f"model.{name}: {shape.what} and a comma or the end are expected")
    cursor.at = last.end()


class _Judge:
    """Bounds on the parts of the file that say what is done with a text."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.at = 0  # byte at which the member judged now starts

    def fail(self, field: str, problem: str) -> NoReturn:
        raise ModelFormatError(self.path, problem, field=field, offset=self.at)

    def model(self, name: str, value: object) -> None:
        """A parameter of the model other than vocabulary and merges."""
        if name == "dropout" and value not in (None, 0):
            self.fail("model.dropout", f"is {value!r:.40}; a text must always be the same tokens")
        if name == "continuing_subword_prefix" and value:
            self.fail(f"model.{name}", f"is {value!r:.40}, which is not supported")
        if isinstance(value, str) and len(value) > MAX_TEXT:
            self.fail(f"model.{name}", f"has {len(value)} characters, more than {MAX_TEXT}")

    def added_tokens(self, value: object) -> None:
        if not isinstance(value, list):
            self.fail("added_tokens", "must be a list")
        left = MAX_ADDED_TEXT
        for index, token in enumerate(value):
            field = f"added_tokens[{index}]"
            if not isinstance(token, dict):
                self.fail(field, "must be an object")
            content, number = token.get("content"), token.get("id")
            if type(number) is not int or not 0 <= number <= MAX_ID:
                self.fail(f"{field}.id", f"is {number!r:.40}, not an integer from 0 to {MAX_ID}")
            if not isinstance(content, str) or not content:
                self.fail(f"{field}.content", "must be a string, not empty")
            left -= len(content)
            if left < 0:
                self.fail(f"{field}.content", f"added tokens of over {MAX_ADDED_TEXT} characters")

    def steps(self, field: str, value: object) -> None:
        """A normalizer, pre-tokenizer, post-processor or decoder."""
        growth = 1
        for count, (name, step) in enumerate(self._flat(field, value)):
            if count == MAX_COMPONENTS:
                self.fail(field, f"has more than {MAX_COMPONENTS} steps")
            self._step(name, step)
            if field in ("normalizer", "decoder"):
                growth *= _growth(step)
            if growth > MAX_GROWTH:
                self.fail(name, f"could make a text {growth} times as long")

    def _flat(self, field: str, value: object) -> Iterator[tuple[str, dict[str, object]]]:
        if value is None:
            return
        if not isinstance(value, dict):
            self.fail(field, "must be an object")
        nested = next((key for key in _NESTED if key in value), None)
        if nested is None:
            yield field, value
            return
        steps = value[nested]
        if not isinstance(steps, list):
            self.fail(f"{field}.{nested}", "must be a list")
        for index, step in enumerate(steps):
            yield from self._flat(f"{field}.{nested}[{index}]", step)

    def _step(self, field: str, step: dict[str, object]) -> None:
        for key, value in step.items():
            name = f"{field}.{key}"
            if key == "precompiled_charsmap":  # the library trusts it, and panics
                self.fail(name, "is not supported")
            if isinstance(value, str) and len(value) > MAX_TEXT:
                self.fail(name, f"has {len(value)} characters, more than {MAX_TEXT}")
            if key == "prepend" and not value:
                self.fail(name, "is empty")
            if key == "pattern":
                self._pattern(name, value, may_be_empty=step.get("type") != "Replace")
            if key == "length" and (type(value) is not int or not 1 <= value < 1 << 31):
                self.fail(name, f"is {value!r:.40}, not a positive integer")
        ids = sum(self._template_ids(field, step))
        if ids > MAX_TEMPLATE_IDS:
            self.fail(field, f"puts {ids} tokens around a text, more than {MAX_TEMPLATE_IDS}")

    def _pattern(self, field: str, value: object, *, may_be_empty: bool) -> None:
        text = value
        if isinstance(value, dict):
            text = value.get("String", value.get("Regex"))
        if not isinstance(text, str) or not text:
            self.fail(field, "must be a pattern, not empty")
        if isinstance(value, dict) and "Regex" in value:
            try:
                check_pattern(text, may_be_empty=may_be_empty)
            except PatternError as error:
                self.fail(field, str(error))
        elif len(text) > MAX_TEXT:
            self.fail(field, f"has {len(text)} characters, more than {MAX_TEXT}")

    def _template_ids(self, field: str, step: dict[str, object]) -> Iterator[int]:
        """Numbers of ids that the pieces of a post-processor's template stand for."""
        known = step.get("special_tokens")
        for key in ("single", "pair"):
            pieces = step.get(key)
            for index, piece in enumerate(pieces if isinstance(pieces, list) else ()):
                name = f"{field}.{key}[{index}]"
                sequence, special = _inner(piece, "Sequence"), _inner(piece, "SpecialToken")
                if sequence is not None and key == "single" and sequence.get("id") != "A":
                    self.fail(name, "must be of the one text there is, 'A'")
                if special is None:
                    continue
                ids = (_inner(known, str(special.get("id"))) or {}).get("ids")
                if not isinstance(ids, list):
                    self.fail(name, f"{special.get('id')!r:.80} is not one of its special tokens")
                yield len(ids)


def _growth(step: dict[str, object]) -> int:
    """Most bytes that a step makes of one byte."""
    content, pattern = step.get("content"), step.get("pattern")
    if step.get("type") == "Replace" and isinstance(content, str):
        found = pattern.get("String") if isinstance(pattern, dict) else None
        length = len(found.encode()) if isinstance(found, str) else 1
        # What matches nothing is put between all bytes, beside them.
        return max(1, -(-len(content.encode()) // length) + (found is None))
    return _GROWTH.get(str(step.get("type")), 1)


def _inner(value: object, key: str) -> dict[str, object] | None:
    """The object ``key`` of an object."""
    inner = value.get(key) if isinstance(value, dict) else None
    return inner if isinstance(inner, dict) else None
