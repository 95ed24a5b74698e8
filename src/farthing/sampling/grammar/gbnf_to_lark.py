r"""GBNF as Lark, as llguidance reads it.

GBNF has no tokens of its own: each character may be the next. llguidance cuts an answer into
terminals, each as long as it can be, and one terminal a character costs it more than a step may
take. So all of a grammar that does not lead back to itself is one terminal, exactly what it was.
Of a grammar that does, the largest parts that do not are terminals: what is written is always of
the grammar, but a part ends only where it cannot go on, so that ``[a-z]+ "z"`` cut in two would
never come to its "z".

llguidance's own ``gbnf_to_lark`` makes terminals of whole rules alone, the first never, reads
``\u00e9`` and ``.`` as something else, and cannot take a rule named ``start``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from farthing.errors import InvalidParameterError
from farthing.sampling.grammar.gbnf import (
    Choice,
    Node,
    Reference,
    Repeat,
    Sequence,
    Set,
    Text,
    parse_gbnf,
)
from farthing.sampling.grammar.limits import MAX_EXPRESSION_WEIGHT, MAX_SOURCE_BYTES

_ENDLESS = MAX_EXPRESSION_WEIGHT + 1  # no terminal is so heavy


def gbnf_to_lark(grammar: str) -> str:
    """A Lark grammar of the same texts, or of some of them: see above.

    Raises :class:`InvalidParameterError` for what is no GBNF or too complex.
    """
    lark = _Writer(parse_gbnf(grammar)).lark()
    nbytes = len(lark.encode())
    if nbytes > MAX_SOURCE_BYTES:
        raise InvalidParameterError(
            f"structured_outputs: GBNF grammar is too complex: as Lark it has {nbytes:,} bytes, at "
            f"most {MAX_SOURCE_BYTES:,} are taken"
        )
    return lark


class _Writer:
    def __init__(self, rules: dict[str, Node]) -> None:
        self._rules = rules
        self._weights = _Weights(rules)
        self._names: dict[str, str] = {}
        self._lines: dict[str, str] = {}  # by name, in the order in which they are named
        self._waiting: list[str] = []

    def lark(self) -> str:
        self._lines["start"] = f"start: {self._reference('root')}"
        while self._waiting:
            rule = self._waiting.pop()
            node, name = self._rules[rule], self._names[rule]
            written = self._terminal(node) if self._weights.ends(node) else self._rule(node)
            self._lines[name] = f"{name}: {written}"
        return "\n".join(self._lines.values())

    def _reference(self, rule: str) -> str:
        """The name of a rule in Lark: upper case is a terminal there."""
        if rule not in self._names:
            plain = re.sub(r"[^a-z0-9]", "_", rule.lower())
            ends = self._weights.ends(self._rules[rule])
            self._names[rule] = self._new_name(f"T_{plain.upper()}" if ends else f"r_{plain}")
            self._waiting.append(rule)
        return self._names[rule]

    def _new_name(self, name: str) -> str:
        number, found = 1, name
        while found in self._lines:
            number += 1
            found = f"{name}_{number}"
        self._lines[found] = ""
        return found

    def _part(self, written: str) -> str:
        """The name of a terminal of its own."""
        name = self._new_name("T")
        self._lines[name] = f"{name}: {written}"
        return name

    def _terminal(self, node: Node) -> str:
        """A node that does not lead back to itself, as a part of a terminal."""
        match node:
            case Text(text):
                return _string(text)
            case Set():
                return _class(node)
            case Reference(name):
                return self._reference(name)
            case Repeat(item, least, most):
                written = self._bracketed(item)
                return (f"({written})" if isinstance(item, Repeat) else written) + _count(
                    least, most
                )
            case Sequence(items):
                return " ".join(map(self._bracketed, items)) or '""'
            case Choice(options):
                return " | ".join(map(self._terminal, options))

    def _bracketed(self, node: Node) -> str:
        written = self._terminal(node)
        return f"({written})" if isinstance(node, Choice | Sequence) else written

    def _rule(self, node: Node) -> str:
        """A node as a part of a rule, with terminals of its own for all that ends."""
        if self._weights.ends(node):
            if isinstance(node, Text | Set | Reference):
                return self._terminal(node)
            return self._part(self._terminal(node))
        match node:
            case Repeat(item, least, most):
                return f"({self._rule(item)}){_count(least, most)}"
            case Choice(options):
                return " | ".join(map(self._rule, options))
            case Sequence(items):
                return self._sequence(items)
            case Reference(name):
                return self._reference(name)
        raise AssertionError("characters always end")

    def _sequence(self, items: tuple[Node, ...]) -> str:
        """Neighbours that end are one terminal, as many as it may have."""
        written: list[str] = []
        run: list[Node] = []
        weight = 0
        for item in items:
            more = self._weights.of(item)
            if run and weight + more >= _ENDLESS:
                written.append(self._run(run))
                run, weight = [], 0
            if more < _ENDLESS:
                run.append(item)
                weight += more
            else:
                text = self._rule(item)
                written.append(f"({text})" if isinstance(item, Choice | Sequence) else text)
        if run:
            written.append(self._run(run))
        return " ".join(written)

    def _run(self, run: list[Node]) -> str:
        if len(run) == 1:
            return self._rule(run[0])
        return self._part(" ".join(map(self._bracketed, run)))


class _Weights:
    """Characters of each node written out; of one that leads back to itself there is no end."""

    def __init__(self, rules: dict[str, Node]) -> None:
        self._rules = rules
        self._known: dict[int, int] = {}  # by node, all of which ``rules`` keeps
        self._ending: dict[str, int] = {}
        named = {name: {*_names(node)} for name, node in rules.items()}
        unknown = [*rules]
        while True:  # who names only what ends, ends
            ready = [name for name in unknown if named[name] <= self._ending.keys()]
            for name in ready:
                self._ending[name] = self.of(rules[name])
            if not ready:
                break
            unknown = [name for name in unknown if name not in self._ending]

    def ends(self, node: Node) -> bool:
        """Whether a terminal can be made of ``node``."""
        return self.of(node) < _ENDLESS

    def of(self, node: Node) -> int:
        """The weight of a node of the rules; asked twice, it is looked up."""
        if id(node) not in self._known:
            self._known[id(node)] = min(self._weigh(node), _ENDLESS)
        return self._known[id(node)]

    def _weigh(self, node: Node) -> int:
        match node:
            case Text(text):
                return len(_string(text).encode())
            case Set():
                return 1
            case Reference(name):
                return self._ending.get(name, _ENDLESS)
            case Repeat(item, least, most):
                return self.of(item) * max(most or least, 1)
            case Sequence(items) | Choice(items):
                return sum(map(self.of, items))


def _names(node: Node) -> Iterator[str]:
    match node:
        case Reference(name):
            yield name
        case Repeat(item):
            yield from _names(item)
        case Sequence(items) | Choice(items):
            for each in items:
                yield from _names(each)


def _count(least: int, most: int | None) -> str:
    marks = {(0, None): "*", (1, None): "+", (0, 1): "?"}
    return marks.get((least, most), f"{{{least},{'' if most is None else most}}}")


def _string(text: str) -> str:
    """Lark's string; of controls and marks their numbers."""
    return '"' + "".join(c if _is_plain(c) else f"\\u{ord(c):04x}" for c in text) + '"'


def _is_plain(character: str) -> bool:
    return ord(character) > 0xFFFF or (character.isprintable() and character not in '"\\')


def _class(node: Set) -> str:
    if not node.ranges:  # none of no characters
        return "/[\\x{0}-\\x{10ffff}]/"
    inside = "".join(
        _in_class(first) if first == last else f"{_in_class(first)}-{_in_class(last)}"
        for first, last in node.ranges
    )
    return f"/[{'^' * node.negated}{inside}]/"


def _in_class(code: int) -> str:
    character = chr(code)
    return character if character.isascii() and character.isalnum() else f"\\x{{{code:x}}}"
