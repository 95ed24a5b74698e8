r"""GBNF as Lark, as llguidance reads it.

GBNF has no tokens of its own: each character may be the next. llguidance cuts an answer into
terminals, each as long as it can be, and one terminal a character costs it more than a step may
take. So all of a grammar that does not lead back to itself is one terminal, exactly what it was.
Of a grammar that does, the largest parts that do not are terminals, and smaller ones where one that
is as long as it can be would take what belongs to the next: :mod:`.gbnf_seams`.

llguidance's own ``gbnf_to_lark`` makes terminals of whole rules alone, the first never, reads
``\u00e9`` and ``.`` as something else, and cannot take a rule named ``start``.
"""

from __future__ import annotations

import re

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
from farthing.sampling.grammar.gbnf_automaton import Automata, Work
from farthing.sampling.grammar.gbnf_parts import (
    All,
    Either,
    Expression,
    Part,
    Parts,
    Rule,
    Times,
    Weights,
)
from farthing.sampling.grammar.gbnf_seams import split_at_seams
from farthing.sampling.grammar.lark_text import lark_class, lark_count, lark_string
from farthing.sampling.grammar.limits import MAX_SOURCE_BYTES


def gbnf_to_lark(grammar: str) -> str:
    """A Lark grammar of the same texts.

    Raises :class:`InvalidParameterError` for what is no GBNF or too complex.
    """
    rules = parse_gbnf(grammar)
    weights = Weights(rules)
    parts = Parts(rules, weights)
    if not weights.ends(rules["root"]):
        work = Work()
        split_at_seams(parts, Automata(rules, weights.ending(), work), work)
    lark = _Writer(rules, parts).lark()
    nbytes = len(lark.encode())
    if nbytes > MAX_SOURCE_BYTES:
        raise InvalidParameterError(
            f"structured_outputs: GBNF grammar is too complex: as Lark it has {nbytes:,} bytes, at "
            f"most {MAX_SOURCE_BYTES:,} are taken"
        )
    return lark


class _Writer:
    def __init__(self, rules: dict[str, Node], parts: Parts) -> None:
        self._nodes = rules
        self._parts = parts
        self._names: dict[tuple[str, bool], str] = {}
        self._lines: dict[str, str] = {}  # by name, in the order in which they are named
        self._waiting: list[tuple[str, bool]] = []

    def lark(self) -> str:
        self._lines["start"] = f"start: {self._name('root', terminal=False)}"
        while self._waiting:
            key = self._waiting.pop()
            rule, terminal = key
            if terminal:
                written = self._terminal(self._nodes[rule])
            else:
                written = self._expression(self._parts.rules[rule])
            self._lines[self._names[key]] = f"{self._names[key]}: {written}"
        return "\n".join(self._lines.values())

    def _name(self, rule: str, *, terminal: bool) -> str:
        """The name of a rule in Lark: upper case is a terminal there."""
        key = rule, terminal
        if key not in self._names:
            plain = re.sub(r"[^a-z0-9]", "_", rule.lower())
            self._names[key] = self._new_name(f"T_{plain.upper()}" if terminal else f"r_{plain}")
            self._waiting.append(key)
        return self._names[key]

    def _new_name(self, name: str) -> str:
        number, found = 1, name
        while found in self._lines:
            number += 1
            found = f"{name}_{number}"
        self._lines[found] = ""
        return found

    def _expression(self, expression: Expression) -> str:
        """As a part of a rule."""
        match expression:
            case Part(run, instead=None):
                return self._part(run)
            case Part(instead=other) if other is not None:
                return self._expression(other)
            case Rule(name):
                return self._name(name, terminal=False)
            case All(items):
                return " ".join(map(self._inner, items))
            case Either(options):
                return " | ".join(map(self._expression, options))
            case Times(item, least, most):
                return f"({self._expression(item)}){lark_count(least, most)}"
        raise AssertionError("a part is a terminal or something else")

    def _inner(self, expression: Expression) -> str:
        written = self._expression(expression)
        return f"({written})" if " " in written else written

    def _part(self, run: tuple[Node, ...]) -> str:
        """A terminal of its own."""
        if len(run) == 1 and isinstance(run[0], Text | Set | Reference):
            return self._terminal(run[0])
        name = self._new_name("T")
        self._lines[name] = f"{name}: {self._terminal(run[0] if len(run) == 1 else Sequence(run))}"
        return name

    def _terminal(self, node: Node) -> str:
        """A node that does not lead back to itself, as a part of a terminal."""
        match node:
            case Text(text):
                return lark_string(text)
            case Set():
                return lark_class(node)
            case Reference(name):
                return self._name(name, terminal=True)
            case Repeat(item, least, most):
                written = self._bracketed(item)
                return (f"({written})" if isinstance(item, Repeat) else written) + lark_count(
                    least, most
                )
            case Sequence(items):
                return " ".join(map(self._bracketed, items)) or '""'
            case Choice(options):
                return " | ".join(map(self._terminal, options))

    def _bracketed(self, node: Node) -> str:
        written = self._terminal(node)
        return f"({written})" if isinstance(node, Choice | Sequence) else written
