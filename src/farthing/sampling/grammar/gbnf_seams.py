r"""Where a terminal of a GBNF grammar must not be as long as it can be.

llguidance cuts an answer into terminals, each as long as any that may stand there could be, and
keeps all of that length. What GBNF takes is lost where a whole terminal is followed by a character
with which one that may stand in its place goes on (or with a byte of UTF-8, by which llguidance
goes): a seam, as between ``[ \t\n]*`` and ``"\n"``.
The one that goes on is split, there and no further, until there are no seams: then every text of
the grammar is cut as one of its derivations has it. In the end all terminals are single characters,
which have none.

Not a seam is what changes nothing: a loop's option that takes the next, or itself again, as more of
itself, and a part that may be empty after one that takes all of it.

What may stand in one place and what may follow it is worked out for all places together, so that
some seams are none; these cost time and no text.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from farthing.errors import InvalidParameterError
from farthing.sampling.grammar.gbnf import Choice, Node, Reference, Repeat, Sequence, Set, Text
from farthing.sampling.grammar.gbnf_automaton import (
    APART,
    Automata,
    Automaton,
    Comparison,
    Transition,
    Work,
    bits_of,
    compare,
)
from farthing.sampling.grammar.gbnf_parts import (
    All,
    Either,
    Expression,
    Part,
    Parts,
    Rule,
    Times,
    parts_of,
)
from farthing.sampling.grammar.gbnf_spelling import excerpt
from farthing.sampling.grammar.limits import MAX_GBNF_LOOP


def split_at_seams(parts: Parts, automata: Automata, work: Work) -> None:
    """Splits terminals until none takes what belongs to the next.

    Raises :class:`InvalidParameterError` where that would leave a loop of so many characters, each
    a terminal, that a step could not go through the tokens of a usual vocabulary; or for more work
    than is done.
    """
    seams = _Seams(parts, automata, work)
    while seams.split():
        pass
    seams.check_loops()


@dataclass(slots=True)
class _Ends:
    """First and last terminals of an expression, as bits, and whether it may be empty."""

    first: int = 0
    last: int = 0
    nullable: bool = False


@dataclass(slots=True)
class _Neighbours:
    """For each terminal, as bits: which may come next, and where that may be a seam."""

    next: list[int]
    seam: list[int]


@dataclass(slots=True)
class _Seams:
    parts: Parts
    automata: Automata
    work: Work
    _compared: dict[tuple[int, int], Comparison] = field(default_factory=dict)
    _terminals: list[Part] = field(default_factory=list)
    _automata: list[Automaton] = field(default_factory=list)
    _firsts: list[int] = field(default_factory=list)  # classes with which they begin
    _numbers: dict[int, int] = field(default_factory=dict)
    _ends: dict[str, _Ends] = field(default_factory=dict)
    _neighbours: _Neighbours = field(default_factory=lambda: _Neighbours([], []))

    def split(self) -> bool:
        """Splits all that has a seam now, once; whether there was any."""
        self._look()
        together = self._together()
        found: dict[int, set[Transition]] = {}
        reasons: dict[int, str] = {}
        leads = self.automata.alphabet.leads
        for one, others in enumerate(together):
            after = leads(self._classes_after(one))
            for other in bits_of(others):
                longer = self._automata[other]
                for before, state in self._compare(one, other).right_goes_on:
                    if leads(longer.classes[state]) & after:
                        found.setdefault(other, set()).add((before, state))
                        if other not in reasons:
                            reasons[other] = self._reason(one, other, longer.classes[state])
        for number, transitions in found.items():
            part = self._terminals[number]
            why = part.reason or reasons[number]
            self.parts.split(part, self._automata[number], transitions, why)
        return bool(found)

    def check_loops(self) -> None:
        """Refuses what of single characters that were split off makes a step too long.

        Of a vocabulary of words one loop over all letters takes few items of the parser, but each
        count and each second loop in which the same characters may be takes them again.
        """
        single = 0
        for number, automaton in enumerate(self._automata):
            if self._terminals[number].reason and len(automaton.classes) == 1:
                single |= 1 << number
        for number in bits_of(self._counted() & single):
            self._check_size(number, self._automata[number].classes[0])
        following = self._neighbours.next
        for number in bits_of(single):
            self.work.take(len(self._terminals))
            for other in bits_of(following[number] & single & ~(1 << number)):
                if following[other] >> number & following[number] >> number & 1:
                    both = self._automata[number].classes[0] & self._automata[other].classes[0]
                    self._check_size(number, both)

    def _counted(self) -> int:
        """Terminals that are repeated as often as a count says, as bits."""
        found = 0
        waiting: list[Expression] = [*self.parts.rules.values()]
        while waiting:
            match waiting.pop():
                case Part(instead=other) if other is not None:
                    waiting.append(other)
                case All(items) | Either(items):
                    waiting += items
                case Times(item, least, most):
                    if max(least, most or 0) > 2:
                        for part in parts_of(item):
                            found |= 1 << self._numbers[id(part)]
                    waiting.append(item)
        return found

    def _check_size(self, number: int, classes: int) -> None:
        if self.automata.alphabet.size(classes) > MAX_GBNF_LOOP:
            raise InvalidParameterError(
                f"structured_outputs: GBNF grammar {self._terminals[number].reason}; to follow "
                "both ways is too complex for counts, and for neighbours, of more than "
                f"{MAX_GBNF_LOOP} different characters. Let what ends the one be no character of "
                "it, or repeat it without a count"
            )

    def _reason(self, one: int, other: int, classes: int) -> str:
        alphabet = self.automata.alphabet
        behind = [*bits_of(self._neighbours.seam[one])]
        same = [number for number in behind if self._first_classes(number) & classes]
        if same:
            after, begins = same[0], "with which"
            character = alphabet.example(classes & self._first_classes(after))
        else:
            leads = alphabet.leads(classes)
            after = next(n for n in behind if alphabet.leads(self._first_classes(n)) & leads)
            character, begins = alphabet.example(classes), "with whose first byte"
        return (
            f"leaves open where {excerpt(self._terminals[other].run)} ends: it may go on with "
            f"{character!r}, {begins} {excerpt(self._terminals[after].run)} may begin"
        )

    def _look(self) -> None:
        """Numbers the terminals as they stand and finds their neighbours."""
        self._terminals = [part for rule in self.parts.rules.values() for part in parts_of(rule)]
        self._automata = [self.automata.of(part.run) for part in self._terminals]
        self._firsts = [automaton.classes_of(automaton.first) for automaton in self._automata]
        self._numbers = {id(part): i for i, part in enumerate(self._terminals)}
        self._ends = {name: _Ends() for name in self.parts.rules}
        changed = True
        while changed:
            changed = False
            for name, rule in self.parts.rules.items():
                ends = self._find(rule, None)
                changed |= ends != self._ends[name]
                self._ends[name] = ends
        count = len(self._terminals)
        self._neighbours = _Neighbours([0] * count, [0] * count)
        for rule in self.parts.rules.values():
            self._find(rule, self._neighbours)
        for one in range(count):
            tail = _tail(self._terminals[one].run, self.automata, self.parts.nodes)
            for other in bits_of(self._neighbours.seam[one]) if tail else ():
                if self._automata[other].nullable and not self._alphabet(other) & ~tail:
                    self._neighbours.seam[one] &= ~(1 << other)

    def _find(self, expression: Expression, neighbours: _Neighbours | None) -> _Ends:
        self.work.take(1)
        match expression:
            case Part(instead=None):
                number = self._numbers[id(expression)]
                return _Ends(1 << number, 1 << number, self._automata[number].nullable)
            case Part(instead=other) if other is not None:
                return self._find(other, neighbours)
            case Rule(name):
                return self._ends[name]
            case All(items):
                return self._find_all(items, neighbours)
            case Either(options):
                whole = _Ends()
                for option in options:
                    ends = self._find(option, neighbours)
                    whole.first |= ends.first
                    whole.last |= ends.last
                    whole.nullable |= ends.nullable
                return whole
            case Times(item, least, most):
                ends = self._find(item, neighbours)
                if neighbours is not None and most != 1:
                    taken = self._taken(item) if least <= 1 and most is None else None
                    self._join(ends.last, ends.first, neighbours, taken)
                return _Ends(ends.first, ends.last, ends.nullable or least == 0)
        raise AssertionError("a part is a terminal or something else")

    def _find_all(self, items: list[Expression], neighbours: _Neighbours | None) -> _Ends:
        whole = _Ends(nullable=True)
        for item in items:
            ends = self._find(item, neighbours)
            if neighbours is not None:
                self._join(whole.last, ends.first, neighbours)
            if whole.nullable:
                whole.first |= ends.first
            whole.last = ends.last | (whole.last if ends.nullable else 0)
            whole.nullable = whole.nullable and ends.nullable
        return whole

    def _join(
        self, before: int, after: int, neighbours: _Neighbours, taken: dict[int, int] | None = None
    ) -> None:
        """``taken``: for a terminal, as bits, those that it takes as more of itself."""
        for number in bits_of(before):
            self.work.take(1)
            neighbours.next[number] |= after
            neighbours.seam[number] |= after & ~(taken or {}).get(number, 0)

    def _taken(self, item: Expression) -> dict[int, int]:
        """Options of a loop that take another option, or themselves, behind them as one."""
        waiting, options = [item], 0
        seen = set()
        while waiting:
            match waiting.pop():
                case Part(instead=None) as part:
                    options |= 1 << self._numbers[id(part)]
                case Part(instead=other) if other is not None:
                    waiting.append(other)
                case Rule(name) if name not in seen:
                    seen.add(name)
                    waiting.append(self.parts.rules[name])
                case Either(several):
                    waiting += several
                case Times(inner, least, None) if least <= 1:
                    waiting.append(inner)
        taken = {}
        for number in bits_of(options):
            tail = _tail(self._terminals[number].run, self.automata, self.parts.nodes)
            taken[number] = sum(
                1 << other for other in bits_of(options) if not self._alphabet(other) & ~tail
            )
        return taken

    def _alphabet(self, number: int) -> int:
        automaton = self._automata[number]
        self.work.take(len(automaton.classes))
        return automaton.classes_of(range(len(automaton.classes)))

    def _classes_after(self, number: int) -> int:
        classes = 0
        for other in bits_of(self._neighbours.seam[number]):
            classes |= self._first_classes(other)
        return classes

    def _first_classes(self, number: int) -> int:
        return self._firsts[number]

    def _compare(self, one: int, other: int) -> Comparison:
        if not self._first_classes(one) & self._first_classes(other):
            return APART
        left, right = self._automata[one], self._automata[other]
        key = id(left), id(right)  # both are kept by ``automata``
        if key not in self._compared:
            self._compared[key] = compare(left, right, self.work)
        return self._compared[key]

    def _together(self) -> list[int]:
        """For each terminal, as bits, those that may stand where it does."""
        start = self._ends["root"].first
        self.work.take(start.bit_count() ** 2)
        found = [start if start >> i & 1 else 0 for i in range(len(self._terminals))]
        waiting = [(one, other) for one in bits_of(start) for other in bits_of(start)]
        while waiting:
            one, other = waiting.pop()
            self.work.take(1)
            if not self._compare(one, other).common:
                continue
            before, after = self._neighbours.next[one], self._neighbours.next[other]
            self.work.take(before.bit_count())
            for number in bits_of(before):
                new = after & ~found[number]
                if not new:
                    continue
                found[number] |= new
                self.work.take(new.bit_count())
                waiting += [(number, each) for each in bits_of(new)]
        return found


def _tail(run: tuple[Node, ...], automata: Automata, rules: dict[str, Node]) -> int:
    """Characters of which any number behind a text of ``run`` is one of its texts again."""
    tail = -1  # all
    waiting: list[Node] = [run[-1]]
    seen = set()
    while waiting and tail:
        match waiting.pop():
            case Repeat(Set() | Text() as item, most=None):
                if isinstance(item, Text) and len(item.text) != 1:
                    return 0
                automaton = automata.of((item,))
                tail &= automaton.classes[0]
            case Reference(name):
                if name not in seen:
                    waiting.append(rules[name])
                seen.add(name)
            case Sequence(items) if items:
                waiting.append(items[-1])
            case Choice(options):
                waiting += options
            case _:
                return 0
    return tail
