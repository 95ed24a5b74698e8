"""GBNF, the grammars of llama.cpp, read into a tree: :mod:`.gbnf_to_lark` writes it as Lark.

The syntax is that of llama.cpp's ``grammars/README.md``, less what names tokens of a vocabulary and
rules that are there twice. An alternative may begin a line outside of brackets too, as other
readers of GBNF have it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NoReturn

from farthing.errors import InvalidParameterError
from farthing.sampling.grammar.limits import (
    MAX_COUNT,
    MAX_DEPTH,
    MAX_LARK_DEFINITIONS,
    MAX_LARK_LITERAL_BYTES,
)
from farthing.sampling.grammar.source_size import require_source_size

_RULE = re.compile(r"^[ \t]*[A-Za-z0-9_-]+[ \t]*::=", re.MULTILINE)
_TOKEN = re.compile(
    r"""
    (?P<skip>[ \t\r\n]+|\#[^\r\n]*)
  | (?P<rule>[A-Za-z0-9_-]+[ \t]*::=)
  | (?P<name>[A-Za-z0-9_-]+)
  | (?P<text>"(?:[^"\\]|\\.)*")
  | (?P<set>\[(?:[^]\\]|\\.)*\])
  | (?P<count>\{\s*(?P<least>[0-9]+)\s*(?:(?P<comma>,)\s*(?P<most>[0-9]*)\s*)?\})
  | (?P<mark>[.()|*+?])
  | (?P<token>!?<(?:\[[0-9]+\]|[^<>\s]+)>)
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_CHARACTER = re.compile(
    r"\\(?:x(?P<x>[0-9a-fA-F]{2})|u(?P<u>[0-9a-fA-F]{4})|U(?P<U>[0-9a-fA-F]{8})|(?P<c>[]nrt\\\"[-]))"
    r"|(?P<plain>[^\\])",
    re.DOTALL,
)
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t"}
_LAST = 0x10FFFF


@dataclass(frozen=True, slots=True)
class Text:
    """Characters as they are."""

    text: str


@dataclass(frozen=True, slots=True)
class Set:
    """One character, of ``ranges`` of code points or of none of them."""

    ranges: tuple[tuple[int, int], ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Reference:
    """What a rule stands for."""

    name: str


@dataclass(frozen=True, slots=True)
class Repeat:
    """``item`` so many times; ``most`` None: without end."""

    item: Node
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class Sequence:
    """One after the other."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of them."""

    options: tuple[Node, ...]


Node = Text | Set | Reference | Repeat | Sequence | Choice


def is_gbnf(grammar: str) -> bool:
    """Whether a grammar defines anything by ``::=``, which Lark does not."""
    return _RULE.search(grammar) is not None


def parse_gbnf(grammar: str) -> dict[str, Node]:
    """The rules by name; ``root`` is one, and all that are named are there.

    Brackets are no deeper than ``MAX_DEPTH``, so that going down the tree is safe. Raises
    :class:`InvalidParameterError`.
    """
    require_source_size(grammar, _refuse)
    return _Parser(grammar).rules()


@dataclass(slots=True)
class _Group:
    """What stands between two brackets so far."""

    line: int
    options: list[Node] = field(default_factory=list)
    items: list[Node] = field(default_factory=list)  # of the last option
    repeated: bool = False  # its last item

    def close(self) -> Node:
        self.next()
        return self.options[0] if len(self.options) == 1 else Choice(tuple(self.options))

    def next(self) -> None:
        items = self.items
        self.options.append(items[0] if len(items) == 1 else Sequence(tuple(items)))
        self.items, self.repeated = [], False


class _Parser:
    """One pass over the text; open brackets are a list, so that no depth is too much for it."""

    def __init__(self, grammar: str) -> None:
        self._text = grammar
        self._line = 1
        self._rules: dict[str, Node] = {}
        self._named: dict[str, int] = {}  # and the line
        self._name = ""
        self._open: list[_Group] = []

    def rules(self) -> dict[str, Node]:
        position = 0
        while position < len(self._text):
            match = _TOKEN.match(self._text, position)
            if match is None:
                self._refuse(f"cannot be read from {self._text[position : position + 20]!r} on")
            position = match.end()
            self._take(match)
            self._line += match[0].count("\n")
        self._end_rule()
        for name, line in self._named.items():
            if name not in self._rules:
                _refuse(f"line {line}: there is no rule {name[:40]}")
        if "root" not in self._rules:
            _refuse("has no rule root, with which an answer begins")
        return self._rules

    def _take(self, match: re.Match[str]) -> None:
        kind, text = match.lastgroup, match[0]
        if match["count"] is not None:
            self._repeat(*self._counts(match))
        elif kind == "rule":
            self._begin_rule(text[:-3].rstrip())
        elif kind == "skip":
            return
        elif kind == "token":
            self._refuse(f"tokens of a vocabulary ({text[:40]}) are not supported")
        elif not self._open:
            self._refuse(f"{text[:20]!r} stands before the first rule (name ::= …)")
        elif kind == "name":
            self._named.setdefault(text, self._line)
            self._add(Reference(text))
        elif kind == "text":
            self._add(self._literal(text[1:-1]))
        elif kind == "set":
            self._add(self._set(text[1:-1]))
        elif text == ".":
            self._add(Set(((0, _LAST),)))
        elif text == "(":
            self._open.append(_Group(self._line))
            if len(self._open) > MAX_DEPTH:
                self._refuse(f"is too complex: brackets nested deeper than {MAX_DEPTH}")
        elif text == ")":
            if len(self._open) == 1:
                self._refuse("a closing bracket too many")
            self._add(self._open.pop().close())
        elif text == "|":
            self._open[-1].next()
        else:
            self._repeat(1 if text == "+" else 0, 1 if text == "?" else None)

    def _begin_rule(self, name: str) -> None:
        self._end_rule()
        if name in self._rules:
            self._refuse(f"the rule {name[:40]} is there twice, which is not supported")
        if len(self._rules) == MAX_LARK_DEFINITIONS:
            _refuse(f"is too complex: more than {MAX_LARK_DEFINITIONS} rules")
        self._name = name
        self._open = [_Group(self._line)]

    def _end_rule(self) -> None:
        if len(self._open) > 1:
            _refuse(f"line {self._open[-1].line}: an open bracket that nothing closes")
        if self._open:
            self._rules[self._name] = self._open.pop().close()

    def _add(self, node: Node) -> None:
        self._open[-1].items.append(node)
        self._open[-1].repeated = False

    def _repeat(self, least: int, most: int | None) -> None:
        group = self._open[-1] if self._open else None
        if group is None or not group.items:
            self._refuse("a repeat of nothing")
        if group.repeated:
            self._refuse("a repeat of a repeat; put brackets around the first")
        nothing = Sequence(())
        group.items[-1] = Repeat(group.items[-1], least, most) if most != 0 else nothing
        group.repeated = True

    def _counts(self, match: re.Match[str]) -> tuple[int, int | None]:
        least = int(match["least"][:9])
        most: int | None = least
        if match["comma"]:
            most = int(match["most"][:9]) if match["most"] else None
        if max(least, most or 0) > MAX_COUNT:
            self._refuse(f"is too complex: more than {MAX_COUNT:,} repeats")
        if most is not None and most < least:
            self._refuse(f"{{{least},{most}}} has its bounds the wrong way round")
        return least, most

    def _literal(self, body: str) -> Text:
        text = "".join(map(chr, self._characters(body)))
        nbytes = len(text.encode())
        if nbytes > MAX_LARK_LITERAL_BYTES:
            self._refuse(f"is too complex: a string of {nbytes:,} bytes")
        return Text(text)

    def _set(self, body: str) -> Set:
        negated = body.startswith("^")
        codes = self._characters(body[negated:], dashes=True)
        ranges = []
        at = 0
        while at < len(codes):
            first = last = abs(codes[at])
            if at + 2 < len(codes) and codes[at + 1] == -ord("-"):
                last = abs(codes[at + 2])
                if last < first:
                    self._refuse(f"the range {chr(first)!r} to {chr(last)!r} is empty")
                at += 2
            ranges.append((first, last))
            at += 1
        if not ranges and not negated:
            self._refuse("[] is no character at all")
        return Set(tuple(ranges), negated)

    def _characters(self, body: str, *, dashes: bool = False) -> list[int]:
        """Code points; with ``dashes`` that of a dash that is not escaped is negative."""
        codes = []
        at = 0
        while at < len(body):
            match = _CHARACTER.match(body, at)
            if match is None:
                self._refuse(f"{body[at : at + 4]!r} is no escape of GBNF")
            at = match.end()
            digits = match["x"] or match["u"] or match["U"]
            if digits:
                code = int(digits, 16)
                if code > _LAST or 0xD800 <= code < 0xE000:
                    self._refuse(f"\\{match[0][1]}{digits} is no character")
            elif match["c"]:
                code = ord(_CONTROLS.get(match["c"], match["c"]))
            else:
                code = ord(match["plain"])
                if dashes and match["plain"] == "-":
                    code = -code
            codes.append(code)
        return codes

    def _refuse(self, problem: str) -> NoReturn:
        _refuse(f"line {self._line}: {problem}")


def _refuse(problem: str) -> NoReturn:
    raise InvalidParameterError(f"structured_outputs: GBNF grammar {problem}")
