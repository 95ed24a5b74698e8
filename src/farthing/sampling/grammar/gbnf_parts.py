"""A GBNF grammar cut into terminals: the largest parts that do not lead back to themselves.

Each can be split where it may not be as long as it can be; :mod:`.gbnf_seams` finds where.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from farthing.sampling.grammar.gbnf import Choice, Node, Reference, Repeat, Sequence, Set, Text
from farthing.sampling.grammar.gbnf_automaton import Automaton, Transition, walk
from farthing.sampling.grammar.lark_text import lark_string
from farthing.sampling.grammar.limits import MAX_EXPRESSION_WEIGHT

_ENDLESS = MAX_EXPRESSION_WEIGHT + 1  # no terminal is so heavy


@dataclass(slots=True, eq=False)
class Part:
    """A terminal: items one after the other; or what stands ``instead`` of it."""

    run: tuple[Node, ...]
    reason: str = ""
    """Why it was split from a larger part."""
    instead: Expression | None = None


@dataclass(slots=True, eq=False)
class Rule:
    """What a rule stands for."""

    name: str


@dataclass(slots=True, eq=False)
class All:
    """One after the other."""

    items: list[Expression]


@dataclass(slots=True, eq=False)
class Either:
    """One of them."""

    options: list[Expression]


@dataclass(slots=True, eq=False)
class Times:
    """``item`` so many times; ``most`` None: without end."""

    item: Expression
    least: int
    most: int | None


Expression = Part | Rule | All | Either | Times


class Parts:
    """The rules as expressions over terminals, by name and from ``root`` on."""

    def __init__(self, rules: dict[str, Node], weights: Weights) -> None:
        self.nodes = rules
        self._weights = weights
        self.rules: dict[str, Expression] = {}
        self._add_rule("root")

    def split(self, part: Part, automaton: Automaton, at: Iterable[Transition], why: str) -> None:
        """Cuts a part where its automaton makes one of these transitions, or closer around it.

        ``why``: what the parts say of it.
        """
        pieces = automaton.pieces
        cuts = {(pieces[before], pieces[after]) for before, after in at}
        (node, *more) = part.run
        if more:
            part.instead = _cut(part.run, cuts, why)
            return
        match node:
            case Text(text):
                ends = sorted({0, len(text), *(after for _, after in cuts)})
                part.instead = All(
                    [Part((Text(text[ends[i] : ends[i + 1]]),), why) for i in range(len(ends) - 1)]
                )
            case Reference(name):
                part.instead = Rule(name)
                self._add_rule(name)
            case Repeat(item, least, most):
                part.instead = Times(_part(item, why), least, most)
            case Choice(options):
                alone = {after for _, after in cuts}
                rest = tuple(option for i, option in enumerate(options) if i not in alone)
                split: list[Expression] = [_part(options[i], why) for i in sorted(alone)]
                if rest:
                    split.append(_part(rest[0] if len(rest) == 1 else Choice(rest), why))
                part.instead = Either(split)
            case Set() | Sequence():
                raise AssertionError("a set is one character, and a sequence is its items")

    def _add_rule(self, name: str) -> None:
        waiting = [name]
        while waiting:
            name = waiting.pop()
            if name not in self.rules:
                self.rules[name] = self._expression(self.nodes[name], waiting)

    def _expression(self, node: Node, named: list[str]) -> Expression:
        if self._weights.ends(node):
            return _part(node)
        match node:
            case Repeat(item, least, most):
                return Times(self._expression(item, named), least, most)
            case Choice(options):
                return Either([self._expression(option, named) for option in options])
            case Sequence(items):
                return self._sequence(items, named)
            case Reference(name):
                named.append(name)
                return Rule(name)
        raise AssertionError("characters always end")

    def _sequence(self, items: tuple[Node, ...], named: list[str]) -> Expression:
        """Neighbours that end are one terminal, as many as it may have."""
        found: list[Expression] = []
        run: list[Node] = []
        weight = 0
        for item in items:
            more = self._weights.of(item)
            if run and weight + more >= _ENDLESS:
                found.append(_run(tuple(run)))
                run, weight = [], 0
            if more < _ENDLESS:
                run.append(item)
                weight += more
            else:
                found.append(self._expression(item, named))
        if run:
            found.append(_run(tuple(run)))
        return All(found)


def _part(node: Node, why: str = "") -> Part:
    if isinstance(node, Sequence) and node.items:
        return Part(node.items, why)
    return Part((node,), why)


def _run(items: tuple[Node, ...], why: str = "") -> Part:
    return _part(items[0], why) if len(items) == 1 else Part(items, why)


def _cut(run: tuple[Node, ...], cuts: set[tuple[int, int]], why: str) -> Expression:
    """A boundary before each item that is entered, and after it if it is entered from itself."""
    ends = {0, len(run)}
    for before, after in cuts:
        ends.add(after)
        if before == after:
            ends.add(after + 1)
    ordered = sorted(ends)
    runs = [run[ordered[i] : ordered[i + 1]] for i in range(len(ordered) - 1)]
    return All([_run(items, why) for items in runs])


def parts_of(expression: Expression) -> list[Part]:
    """The terminals of an expression as they stand, in order."""
    found: list[Part] = []
    waiting = [expression]
    while waiting:
        match waiting.pop():
            case Part(instead=None) as part:
                found.append(part)
            case Part(instead=other) if other is not None:
                waiting.append(other)
            case All(items) | Either(items):
                waiting += reversed(items)
            case Times(item):
                waiting.append(item)
    return found


class Weights:
    """Characters of each node written out; of one that leads back to itself there is no end."""

    def __init__(self, rules: Mapping[str, Node]) -> None:
        self._rules = rules
        self._known: dict[int, int] = {}  # by node, all of which ``rules`` keeps
        self._ending: dict[str, int] = {}
        named = {
            name: {each.name for each in walk(node) if isinstance(each, Reference)}
            for name, node in rules.items()
        }
        unknown = [*rules]
        while True:  # who names only what ends, ends
            ready = [name for name in unknown if named[name] <= self._ending.keys()]
            for name in ready:
                self._ending[name] = self.of(rules[name])
            if not ready:
                break
            unknown = [name for name in unknown if name not in self._ending]

    def ending(self) -> list[str]:
        """The rules of which terminals can be made, none before those that it names."""
        return [name for name, weight in self._ending.items() if weight < _ENDLESS]

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
                return len(lark_string(text).encode())
            case Set():
                return 1
            case Reference(name):
                return self._ending.get(name, _ENDLESS)
            case Repeat(item, least, most):
                return self.of(item) * max(most or least, 1)
            case Sequence(items) | Choice(items):
                return sum(map(self.of, items))
