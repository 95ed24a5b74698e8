"""Lark grammars: what is left to llguidance, and what is refused before it.

Refused are its extensions that reach past the text of one answer (token ids, other grammars,
options, temperatures) or past the checks of a JSON schema (``%json``), and sizes that its compiler,
which goes down through definitions recursively and writes terminals out, does not bound.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn

from farthing.errors import InvalidParameterError
from farthing.sampling.grammar.limits import (
    MAX_COUNT,
    MAX_DEPTH,
    MAX_EXPRESSION_WEIGHT,
    MAX_LARK_DEFINITIONS,
    MAX_LARK_LITERAL_BYTES,
    MAX_LARK_NESTING,
    MAX_SCHEMA_WEIGHT,
    MAX_TOGETHER,
)
from farthing.sampling.grammar.regex import Weight, check_regex
from farthing.sampling.grammar.source_size import require_source_size

# The tokens of llguidance's own lexer; each begins with a character of its own.
_TOKEN = re.compile(
    r"""
    (?P<skip>[ \t]+|(?:\#|//)[^\n]*)
  | (?P<newline>(?:\r?\n)+)
  | (?P<string>"(?:\\(?:["\\/bfnrt]|u[a-fA-F0-9]{4}|x[a-fA-F0-9]{2})|[^"\\\x00-\x1F\x7F])*"i?)
  | (?P<regex>/(?P<body>(?:\\.|[^/\\])+)/(?P<flags>[imslux]*))
  | (?P<special><[^<>\s]+>|@[\w-]+)
  | (?P<directive>%[a-z]+)
  | (?P<name>!?[_?]?[A-Za-z][\w-]*|_[A-Za-z][\w-]*)
  | (?P<number>[0-9]+)
  | (?P<mark>->|::|\.\.|[][(){}:,.~|&=_+*?-])
    """,
    re.VERBOSE | re.ASCII,
)
_DIRECTIVES = frozenset({"%ignore", "%import", "%declare", "%override"})


class _Token(NamedTuple):
    kind: str
    text: str
    weight: Weight = Weight()  # of a string or regular expression


_NOTHING = Weight()
_CEILING = 1 << 40  # numbers stop growing here


@dataclass
class _Item:
    """A part of a definition: characters of its own, and references, each so many times."""

    own: Weight = _NOTHING
    most: Counter[str] = field(default_factory=Counter)
    least: Counter[str] = field(default_factory=Counter)

    def add(self, other: _Item) -> None:
        self.own = Weight(self.own.most + other.own.most, self.own.least + other.own.least)
        self.most.update(other.most)
        self.least.update(other.least)

    def times(self, most: int, least: int) -> _Item:
        return _Item(
            Weight(min(self.own.most * most, _CEILING), min(self.own.least * least, _CEILING)),
            Counter({name: min(n * most, _CEILING) for name, n in self.most.items()}),
            Counter({name: min(n * least, _CEILING) for name, n in self.least.items()}),
        )


def check_lark(grammar: str) -> None:
    """Raises :class:`InvalidParameterError` for a grammar that is not to be taken."""
    require_source_size(grammar, _refuse)
    if not grammar.strip():
        _refuse("is empty")
    tokens = list(_tokens(grammar))
    if sum(token.text == "&" for token in tokens) >= MAX_TOGETHER:
        _refuse(f"is too complex: more than {MAX_TOGETHER - 1} intersections (&)")
    definitions = _definitions(tokens)
    if len(definitions) > MAX_LARK_DEFINITIONS:
        _refuse(
            f"of {len(definitions):,} definitions is too complex; "
            f"at most {MAX_LARK_DEFINITIONS} are taken"
        )
    _check_terminals(definitions)
    _check_rules(definitions)


def _tokens(grammar: str) -> Iterator[_Token]:
    position, line, weight = 0, 1, 0
    while position < len(grammar):
        match = _TOKEN.match(grammar, position)
        if match is None:
            _refuse(f"line {line}: cannot be read from {grammar[position : position + 20]!r} on")
        position = match.end()
        kind, text = match.lastgroup or "", match[0]
        if match["regex"] is not None:
            kind = "regex"
        token = _token(match, kind, text, line)
        weight += token.weight.most
        if weight > MAX_SCHEMA_WEIGHT:
            _refuse(f"is too complex: more than {MAX_SCHEMA_WEIGHT:,} characters of terminals")
        line += text.count("\n")
        if kind != "skip":
            yield token


def _token(match: re.Match[str], kind: str, text: str, line: int) -> _Token:
    if kind == "special":
        _refuse(f"line {line}: {text[:40]}: token ids and other grammars are not supported")
    if kind == "directive" and text not in _DIRECTIVES:
        _refuse(f"line {line}: {text[:40]} is not supported")
    if kind == "name" and text in ("temperature", "max_tokens", "stop", "stop_capture"):
        _refuse(f"line {line}: the attribute {text} is not supported")
    if kind == "string":
        nbytes = len(text.encode())
        if nbytes > MAX_LARK_LITERAL_BYTES:
            _refuse(f"line {line}: is too complex: a string of {nbytes:,} bytes")
        return _Token(kind, text, Weight(nbytes, nbytes))
    if kind == "regex":
        if "x" in match["flags"]:
            _refuse(f"line {line}: the flag x of regular expressions is not supported")
        return _Token(kind, text, check_regex(match["body"], f"Lark grammar, line {line}:"))
    return _Token(kind, text)


def _statements(tokens: list[_Token]) -> list[list[_Token]]:
    """The lines of a grammar; one that begins with a bar goes on with the line before it."""
    statements = []
    start = 0
    for i in range(1, len(tokens) + 1):
        if i == len(tokens) or (tokens[i - 1].kind == "newline" and tokens[i].text != "|"):
            statements.append([token for token in tokens[start:i] if token.kind != "newline"])
            start = i
    return [statement for statement in statements if statement]


def _definitions(tokens: list[_Token]) -> dict[str, _Item]:
    """The definitions by name, with what their texts weigh."""
    definitions: dict[str, _Item] = {}
    nesting = 0
    for statement in _statements(tokens):
        if statement[0].kind == "name":
            weight, depth = _weigh(statement[1:])
            nesting += 1 + depth
            definitions.setdefault(statement[0].text.lstrip("!?"), weight)
    if nesting > MAX_LARK_NESTING:
        _refuse(
            f"is too complex: definitions and the brackets inside them add up to more than "
            f"{MAX_LARK_NESTING} levels"
        )
    return definitions


def _weigh(tokens: list[_Token]) -> tuple[_Item, int]:
    """What a definition's text weighs, alternatives added up, and how deep its brackets go."""
    stack = [_Item()]
    last = _Item()  # what an operator would apply to; not yet added
    depth = 0
    position = 0
    while position < len(tokens):
        token = tokens[position]
        position += 1
        if token.text in ("{", "~") and last != _Item():
            most, least, position = _count(tokens, position)
            last = last.times(max(most, 1), least)
            continue
        if token.text in ("*", "?"):
            last = last.times(1, 0)
            continue
        stack[-1].add(last)
        last = _Item()
        if token.text in ("(", "["):
            stack.append(_Item())
            depth = max(depth, len(stack) - 1)
            if depth > MAX_DEPTH:
                _refuse(f"is too complex: brackets nested deeper than {MAX_DEPTH}")
        elif token.text in (")", "]") and len(stack) > 1:
            last = stack.pop()
        elif token.kind == "name":
            last = _Item(Weight(), Counter({token.text: 1}), Counter({token.text: 1}))
        elif token.weight.most:
            last = _Item(token.weight)
    stack[-1].add(last)
    while len(stack) > 1:
        stack[-2].add(stack.pop())
    return stack[0], depth


def _count(tokens: list[_Token], position: int) -> tuple[int, int, int]:
    """The larger and the smaller number of ``{m,n}`` or ``~ m..n``, and where it ends."""
    numbers = []
    first = position
    while position < len(tokens) and (
        tokens[position].kind == "number" or tokens[position].text in (",", "..", "}")
    ):
        if tokens[position].kind == "number":
            numbers.append(int(tokens[position].text[:9]))
        position += 1
    most = max(numbers, default=1)
    if most > MAX_COUNT:
        _refuse(f"is too complex: {most:,} repeats, at most {MAX_COUNT:,} are taken")
    least = numbers[0] if numbers and tokens[first].kind == "number" else 0
    return most, least, position


def _is_terminal(name: str) -> bool:
    return name.lstrip("_")[:1].isupper()


def _check_terminals(definitions: dict[str, _Item]) -> None:
    """Terminals (upper case) are written out as regular expressions, those inside them too."""
    known: dict[str, int] = {}

    def weight(name: str) -> int:
        item = definitions.get(name)
        if item is None or not _is_terminal(name):
            return 1  # imported, or a rule, which llguidance refuses here
        if name not in known:
            known[name] = 1  # in a circle, which it refuses too
            total = item.own.most
            for other, times in item.most.items():
                total += times * weight(other)
            known[name] = total
            if known[name] > MAX_EXPRESSION_WEIGHT:
                _refuse(
                    f"is too complex: written out, the terminal {name[:40]} has more than "
                    f"{MAX_EXPRESSION_WEIGHT:,} characters"
                )
        return known[name]

    for name in definitions:
        weight(name)


def _check_rules(definitions: dict[str, _Item]) -> None:
    """Text that rules leave no choice about is worked out at once, all of it."""
    known: dict[str, int] = {}

    def weight(name: str) -> int:
        item = definitions.get(name)
        if item is None:
            return 1
        if name not in known:
            known[name] = 0  # in a circle; llguidance counts those itself
            total = item.own.least
            for other, times in item.least.items():
                total += times * weight(other)
            known[name] = total
            if known[name] > MAX_SCHEMA_WEIGHT:
                _refuse(
                    f"is too complex: {name[:40]} has more than {MAX_SCHEMA_WEIGHT:,} characters "
                    "that must be"
                )
        return known[name]

    for name in definitions:
        weight(name)


def _refuse(problem: str) -> NoReturn:
    raise InvalidParameterError(f"structured_outputs: Lark grammar {problem}")
