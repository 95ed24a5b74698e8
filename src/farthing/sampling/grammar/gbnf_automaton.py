"""The parts of a GBNF grammar as automata of characters, and which texts two of them share.

An automaton is Glushkov's: a state for each character written in the part, entered by it. What two
parts have to do with each other is found by going through both at once, character by character.

Source: V. M. Glushkov, "The abstract theory of automata", Russian Mathematical Surveys 16 (1961).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from farthing.errors import InvalidParameterError
from farthing.sampling.grammar.gbnf import Choice, Node, Reference, Repeat, Sequence, Set, Text
from farthing.sampling.grammar.limits import MAX_GBNF_STEPS

_END = 0x110000  # of the code points


class Work:
    """What is left of the steps that one grammar may take."""

    def __init__(self) -> None:
        self._left = MAX_GBNF_STEPS

    def take(self, steps: int) -> None:
        """Raises :class:`InvalidParameterError` when there are no more."""
        self._left -= steps
        if self._left < 0:
            raise InvalidParameterError(
                "structured_outputs: GBNF grammar is too complex: where its parts end cannot be "
                f"seen in {MAX_GBNF_STEPS:,} steps"
            )


class Alphabet:
    """The characters in classes that no set of a grammar divides; sets of them are bits."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        edges = {0, _END}
        for node in nodes:
            for each in walk(node):
                if isinstance(each, Set):
                    edges.update(code for a, b in each.ranges for code in (a, b + 1))
                elif isinstance(each, Text):
                    edges.update(code + i for code in map(ord, each.text) for i in (0, 1))
        self._edges = sorted(edges)
        self._all = (1 << (len(self._edges) - 1)) - 1
        self._leads = [
            (2 << _lead(self._edges[i + 1] - 1)) - (1 << _lead(self._edges[i]))
            for i in range(len(self._edges) - 1)
        ]

    def of(self, node: Set) -> int:
        """The classes of a set."""
        bits = 0
        for first, last in node.ranges:
            bits |= self._between(first, last + 1)
        return self._all & ~bits if node.negated else bits

    def of_character(self, character: str) -> int:
        """The class of one character, which the grammar has in a text of its own."""
        return self._between(ord(character), ord(character) + 1)

    def leads(self, classes: int) -> int:
        """The bytes with which these characters begin in UTF-8, as bits; rather more than fewer."""
        bits = 0
        for i in bits_of(classes):
            bits |= self._leads[i]
        return bits

    def size(self, classes: int) -> int:
        """How many characters these are."""
        return sum(self._edges[i + 1] - self._edges[i] for i in bits_of(classes))

    def example(self, classes: int) -> str:
        """One of them, that can be printed if any of the lower ones can."""
        firsts = [self._edges[i] for i in bits_of(classes)]
        ends = [self._edges[i + 1] for i in bits_of(classes)]
        near = (
            chr(code)
            for a, b in zip(firsts, ends, strict=True)
            for code in range(a, min(b, a + 64))
        )
        return next((character for character in near if character.isprintable()), chr(firsts[0]))

    def _between(self, first: int, end: int) -> int:
        return (1 << bisect_left(self._edges, end)) - (1 << bisect_left(self._edges, first))


def _lead(code: int) -> int:
    """The first byte of a code point in UTF-8; it grows with the code."""
    if code < 0x80:
        return code
    if code < 0x800:
        return 0xC0 | code >> 6
    return 0xE0 | code >> 12 if code < 0x10000 else 0xF0 | code >> 18


@dataclass(slots=True)
class Automaton:
    """States by number; no state is entered by another character than those of ``classes``."""

    classes: list[int] = field(default_factory=list)
    following: list[list[int]] = field(default_factory=list)
    """States by state; those with the same share one list."""
    first: list[int] = field(default_factory=list)
    last: set[int] = field(default_factory=set)
    nullable: bool = True
    pieces: list[int] = field(default_factory=list)
    """Of which item of a sequence, option of a choice or character of a text each state is."""

    def classes_of(self, states: Iterable[int]) -> int:
        """All by which these states are entered."""
        bits = 0
        for state in states:
            bits |= self.classes[state]
        return bits


Transition = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a text of two automata is: whole in both, or whole in one where the other goes on."""

    common: bool
    left_goes_on: frozenset[Transition]
    right_goes_on: frozenset[Transition]


APART = Comparison(False, frozenset(), frozenset())
"""Of automata that begin with different characters."""


def compare(left: Automaton, right: Automaton, work: Work) -> Comparison:
    """Through both at once; the text of no characters is left out."""
    common = False
    left_goes_on: set[Transition] = set()
    right_goes_on: set[Transition] = set()
    waiting = _together(left, left.first, right, right.first, work)
    seen = set(waiting)
    followed = set()
    while waiting:
        a, b = waiting.pop()
        if a in left.last:
            common |= b in right.last
            right_goes_on.update((b, after) for after in right.following[b])
        if b in right.last:
            left_goes_on.update((a, after) for after in left.following[a])
        lists = id(left.following[a]), id(right.following[b])
        if lists in followed:
            continue
        followed.add(lists)
        for pair in _together(left, left.following[a], right, right.following[b], work):
            if pair not in seen:
                seen.add(pair)
                waiting.append(pair)
    return Comparison(common, frozenset(left_goes_on), frozenset(right_goes_on))


def _together(
    left: Automaton, ones: list[int], right: Automaton, others: list[int], work: Work
) -> list[tuple[int, int]]:
    work.take(len(ones) * len(others) + 1)
    return [(a, b) for a in ones for b in others if left.classes[a] & right.classes[b]]


_Fragment = tuple[list[int], list[int], bool]  # first and last states, and whether it may be empty


class Automata:
    """Makes the automaton of any part that does not lead back to itself."""

    def __init__(self, rules: Mapping[str, Node], ending: Iterable[str], work: Work) -> None:
        """``ending``: the rules that do not lead back, none before those that it names."""
        self.alphabet = Alphabet(rules.values())
        self._work = work
        self._rules: dict[str, Automaton] = {}
        self._known: dict[tuple[Node, ...], Automaton] = {}
        for name in ending:
            self._rules[name] = self.of((rules[name],))

    def of(self, run: tuple[Node, ...]) -> Automaton:
        """One item after the other."""
        if run not in self._known:
            builder = _Builder(self.alphabet, self._rules, self._work)
            self._known[run] = builder.automaton(run)
        return self._known[run]


class _Builder:
    def __init__(self, alphabet: Alphabet, rules: Mapping[str, Automaton], work: Work) -> None:
        self._alphabet = alphabet
        self._rules = rules
        self._work = work
        self._made = Automaton()

    def automaton(self, run: tuple[Node, ...]) -> Automaton:
        match run:
            case (Choice(options),):
                whole = _either([self._piece(i, option) for i, option in enumerate(options)])
            case (Text(text),):
                whole = self._chain([self._piece(i, Text(c)) for i, c in enumerate(text)])
            case _:
                whole = self._chain([self._piece(i, item) for i, item in enumerate(run)])
        first, last, self._made.nullable = whole
        self._made.first, self._made.last = [*dict.fromkeys(first)], set(last)
        same: dict[tuple[int, ...], list[int]] = {}
        for i, following in enumerate(self._made.following):
            alone = tuple(dict.fromkeys(following))
            self._made.following[i] = same.setdefault(alone, [*alone])
        return self._made

    def _piece(self, number: int, node: Node) -> _Fragment:
        fragment = self._fragment(node)
        self._made.pieces += [number] * (len(self._made.classes) - len(self._made.pieces))
        return fragment

    def _fragment(self, node: Node) -> _Fragment:
        match node:
            case Text(text):
                return self._chain([self._state(self._alphabet.of_character(c)) for c in text])
            case Set():
                return self._state(self._alphabet.of(node))
            case Reference(name):
                return self._copy(self._rules[name])
            case Repeat():
                return self._repeat(node)
            case Sequence(items):
                return self._chain([self._fragment(item) for item in items])
            case Choice(options):
                return _either([self._fragment(option) for option in options])

    def _state(self, classes: int) -> _Fragment:
        self._work.take(1)
        self._made.classes.append(classes)
        self._made.following.append([])
        state = len(self._made.classes) - 1
        return [state], [state], False

    def _copy(self, other: Automaton) -> _Fragment:
        self._work.take(len(other.classes) + sum(map(len, other.following)))
        base = len(self._made.classes)
        self._made.classes += other.classes
        self._made.following += [[base + s for s in states] for states in other.following]
        return [base + s for s in other.first], [base + s for s in other.last], other.nullable

    def _join(self, before: list[int], after: list[int]) -> None:
        self._work.take(len(before) * len(after))
        for state in before:
            self._made.following[state] += after

    def _chain(self, fragments: list[_Fragment]) -> _Fragment:
        first: list[int] = []
        last: list[int] = []
        nullable = True
        for more_first, more_last, empty in fragments:
            self._join(last, more_first)
            first = first + more_first if nullable else first
            last = last + more_last if empty else more_last
            nullable = nullable and empty
        return first, last, nullable

    def _repeat(self, node: Repeat) -> _Fragment:
        """Copies in a row; after enough of them each may be the last."""
        first: list[int] = []
        last: list[int] = []
        before: list[int] = []
        nullable = node.least == 0
        copies = node.most or max(node.least, 1)
        for number in range(1, copies + 1):
            self._work.take(1)  # of nothing too
            more_first, more_last, empty = self._fragment(node.item)
            nullable = nullable or empty
            if number == 1:
                first = more_first
            self._join(before, more_first)
            if number >= node.least or empty:
                last = last + more_last
            before = more_last
            if number == copies and node.most is None:
                self._join(more_last, more_first)
        return first, last, nullable


def _either(fragments: list[_Fragment]) -> _Fragment:
    first = [state for fragment in fragments for state in fragment[0]]
    last = [state for fragment in fragments for state in fragment[1]]
    return first, last, any(fragment[2] for fragment in fragments)


def walk(node: Node) -> Iterator[Node]:
    """A node and all inside, but not what references lead to."""
    yield node
    match node:
        case Repeat(item):
            yield from walk(item)
        case Sequence(items) | Choice(items):
            for each in items:
                yield from walk(each)


def bits_of(bits: int) -> Iterator[int]:
    """The numbers of the bits that are set, from the lowest."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest
