"""Regular expressions of a tokenizer file that cannot keep a text waiting.

``tokenizers`` matches them with Oniguruma, which backtracks: a hostile pattern takes a time
exponential in the length of a text, and nothing can interrupt it. So the shape of a pattern is
checked before it is used. Within an alternative there may be at most ``MAX_DEGREE`` repetitions
without bound, and what is repeated without bound must match in one way only; then the time a text
takes is at most a small power of its length. Published pre-tokenizers need two.

Syntax: the Oniguruma documentation, ``doc/RE``, Ruby syntax.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_LENGTH = 4096  # characters
MAX_DEPTH = 16  # of groups and of classes
MAX_DEGREE = 3
MAX_WAYS = 10_000  # in which bounded parts of an alternative may match at one place
MAX_COUNT = 1000  # of a bounded repetition

_GROUP = re.compile(r"\((?:\?(?:[imx]*(?:-[imx]+)?:|=|!|<=|<!|>|<[A-Za-z_][A-Za-z0-9_]*>))?")
_PROPERTY = re.compile(r"[pP]\{\^?[A-Za-z0-9_ -]+\}")
_CODE = re.compile(r"x(?:\{[0-9A-Fa-f]{1,8}\}|[0-9A-Fa-f]{1,2})|u[0-9A-Fa-f]{4}")
_COUNT = re.compile(r"\{([0-9]{0,5})(?:(,)([0-9]{0,5}))?\}")
_SIMPLE = frozenset("dDsSwWhHbBAzZGRXNOntrfvae")  # escapes of one letter that match in one way

_ANCHORS = frozenset({r"\b", r"\B", r"\A", r"\z", r"\Z", r"\G"})


class PatternError(ValueError):
    """What is wrong with a pattern, for people."""


@dataclass(frozen=True, slots=True)
class _Cost:
    """What matching a part may take: ``ways`` · n^``degree`` steps for n characters."""

    ways: int = 1
    degree: int = 0
    fixed: bool = True  # matches in one way: its length does not vary
    empty: bool = False  # may match no character

    def then(self, other: _Cost) -> _Cost:
        ways = min(self.ways * other.ways, MAX_WAYS + 1)
        degree, fixed = self.degree + other.degree, self.fixed and other.fixed
        return _Cost(ways, degree, fixed, self.empty and other.empty)

    def either(self, other: _Cost) -> _Cost:
        ways = min(self.ways + other.ways, MAX_WAYS + 1)
        degree, empty = max(self.degree, other.degree), self.empty or other.empty
        return _Cost(ways, degree, fixed=False, empty=empty)


def check_pattern(pattern: str, *, may_be_empty: bool = True) -> None:
    """Raises :class:`PatternError` for a pattern that might take too long, or cannot be judged.

    ``may_be_empty``: whether it may match no character.
    """
    if len(pattern) > MAX_LENGTH:
        raise PatternError(f"a pattern of {len(pattern)} characters, more than {MAX_LENGTH}")
    judge = _Judge(pattern)
    cost = judge.alternatives(0)
    if judge.at < len(pattern):
        raise judge.error("an unmatched ')'")
    if cost.empty and not may_be_empty:
        raise PatternError("a pattern that may match nothing")


class _Judge:
    """A recursive descent over a pattern that keeps nothing but costs."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0

    def error(self, problem: str) -> PatternError:
        near = self.pattern[max(0, self.at - 10) : self.at + 10]
        return PatternError(f"{problem} at character {self.at} of a pattern, near {near!r}")

    def alternatives(self, depth: int) -> _Cost:
        if depth > MAX_DEPTH:
            raise self.error(f"groups nested deeper than {MAX_DEPTH}")
        cost = self._sequence(depth)
        while self.pattern.startswith("|", self.at):
            self.at += 1
            cost = cost.either(self._sequence(depth))
        return cost

    def _sequence(self, depth: int) -> _Cost:
        cost = _Cost(empty=True)
        while self.at < len(self.pattern) and self.pattern[self.at] not in "|)":
            cost = cost.then(self._repeated(depth))
            if cost.degree > MAX_DEGREE:
                raise self.error(f"more than {MAX_DEGREE} repetitions without bound in a row")
            if cost.ways > MAX_WAYS:
                raise self.error(f"more than {MAX_WAYS} ways to match")
        return cost

    def _repeated(self, depth: int) -> _Cost:
        cost = self._atom(depth)
        while (bounds := self._quantifier()) is not None:
            low, high = bounds
            if high is None:
                if not cost.fixed or cost.degree:
                    raise self.error("a repetition without bound of what can match in several ways")
                cost = _Cost(cost.ways, 1, fixed=False, empty=cost.empty or low == 0)
                continue
            if high > MAX_COUNT:
                raise self.error(f"a repetition of {high}, more than {MAX_COUNT}")
            ways = min(cost.ways ** min(high, 20), MAX_WAYS + 1) * (high - low + 1)
            fixed, empty = cost.fixed and low == high, cost.empty or low == 0
            cost = _Cost(ways, cost.degree * high, fixed, empty)
        return cost

    def _quantifier(self) -> tuple[int, int | None] | None:
        """The bounds of the quantifier here, if there is one; None above: without bound."""
        sign = self.pattern[self.at : self.at + 1]
        if sign and sign in "*+?":
            self.at += 1
            bounds: tuple[int, int | None] = (
                int(sign == "+"),
                1 if sign == "?" else None,
            )
            if self.pattern.startswith(("?", "+"), self.at):  # lazy or possessive
                self.at += 1
            return bounds
        count = _COUNT.match(self.pattern, self.at)
        if count is None or not (count[1] or count[3]):
            return None
        self.at = count.end()
        low = int(count[1] or 0)
        if count[2] is None:
            return low, low
        high = int(count[3]) if count[3] else None
        if high is not None and low > high:
            raise self.error("a repetition whose bounds are reversed")
        if self.pattern.startswith("?", self.at):
            self.at += 1
        return low, high

    def _atom(self, depth: int) -> _Cost:
        character = self.pattern[self.at]
        if character == "(":
            return self._group(depth)
        empty = character in "^$" or self.pattern[self.at : self.at + 2] in _ANCHORS
        if character == "[":
            self._class(0)
        elif character == "\\":
            self._escape()
        elif character in "*+?":
            raise self.error("a repetition of nothing")
        else:
            self.at += 1
        return _Cost(empty=empty)

    def _group(self, depth: int) -> _Cost:
        opening = _GROUP.match(self.pattern, self.at)
        assert opening is not None  # a bracket stands here
        if self.pattern.startswith(("?", "*"), opening.end()):
            raise self.error("a group of a kind that is not supported")
        self.at = opening.end()
        cost = self.alternatives(depth + 1)
        if not self.pattern.startswith(")", self.at):
            raise self.error("a group without its end")
        self.at += 1
        if opening[0].endswith(("=", "!")):  # looks around, so it adds no way to match
            return _Cost(cost.ways, cost.degree, empty=True)
        return cost

    def _class(self, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise self.error(f"classes nested deeper than {MAX_DEPTH}")
        self.at += 1
        if self.pattern.startswith("^", self.at):
            self.at += 1
        if self.pattern.startswith("]", self.at):  # first, it stands for itself
            self.at += 1
        while self.at < len(self.pattern):
            character = self.pattern[self.at]
            if character == "]":
                self.at += 1
                return
            if character == "[":
                self._class(depth + 1)
            elif character == "\\":
                self._escape()
            else:
                self.at += 1
        raise self.error("a class without its end")

    def _escape(self) -> None:
        self.at += 1
        if self.at >= len(self.pattern):
            raise self.error("a backslash at the end")
        for known in (_PROPERTY, _CODE):
            match = known.match(self.pattern, self.at)
            if match is not None:
                self.at = match.end()
                return
        character = self.pattern[self.at]
        if character not in _SIMPLE and (character.isalnum() or ord(character) < 32):
            raise self.error(f"\\{character} is not supported")
        self.at += 1
