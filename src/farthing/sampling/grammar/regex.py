"""Regular expressions: what the engine would read otherwise than other software, or not bound.

llguidance reads the syntax of Rust's ``regex`` crate. This reads just enough of an expression to
refuse what that syntax gives another meaning than Python and ECMA-262 do, and repeats that would
take a step of the engine too long. All else that is wrong llguidance itself refuses.
"""

from __future__ import annotations

import re
from typing import NamedTuple, NoReturn

from farthing.errors import InvalidParameterError
from farthing.sampling.grammar.limits import (
    MAX_DEPTH,
    MAX_EXPRESSION_CHARACTERS,
    MAX_EXPRESSION_WEIGHT,
)

_COUNTED = re.compile(r"\{(\d+)(?:(,)(\d*))?\}", re.ASCII)
_ESCAPE = re.compile(r"\\(?:[pPxuU]\{[^}]*\}|.)", re.DOTALL)
_GROUP = re.compile(r"\((?:\?(?:[ims]*(?:-[ims]+)?[:)]|P?<[A-Za-z_]\w*>))?", re.ASCII)


class Weight(NamedTuple):
    """Characters of an expression written out, alternatives added up.

    ``most``: each counted repeat as often as it may be, others once; ``least``: as it must be.
    """

    most: int = 0
    least: int = 0


def check_regex(expression: str, where: str) -> Weight:
    """What ``expression`` weighs.

    Raises :class:`InvalidParameterError`, naming ``where``, for an expression not to be taken.
    """
    if len(expression) > MAX_EXPRESSION_CHARACTERS:
        _refuse(
            where,
            f"of {len(expression):,} characters is too complex; "
            f"at most {MAX_EXPRESSION_CHARACTERS:,} are taken",
        )
    try:
        expression.encode()
    except UnicodeEncodeError:
        _refuse(where, "has a lone surrogate, which is not Unicode text")
    return _Reader(expression, where).read()


class _Reader:
    """One pass over an expression, adding up the weights of the open groups."""

    def __init__(self, expression: str, where: str) -> None:
        self._text = expression
        self._where = where
        self._sums = [Weight()]  # of each open group
        self._last = Weight()  # of the item a quantifier applies to

    def read(self) -> Weight:
        position = 0
        while position < len(self._text):
            position = self._item(position)
        if len(self._sums) > 1:
            self._refuse("has an unclosed group")
        return self._sums[0]

    def _item(self, at: int) -> int:
        character = self._text[at]
        if character == "(":
            return self._open(at)
        if character == ")":
            if len(self._sums) == 1:
                self._refuse("has a closing bracket too many")
            self._take(self._sums.pop())
            return at + 1
        if character in "*+?":
            self._repeat(1, 1 if character == "+" else 0)
            return self._quantified(at + 1)
        if character == "{":
            return self._counted(at)
        if character == "[":
            end = self._character_class(at)
        elif character == "\\":
            end = self._escape(at)
        else:
            end = at + 1
        self._take(Weight(1, 1))
        return end

    def _open(self, at: int) -> int:
        group = _GROUP.match(self._text, at)
        assert group is not None
        end = group.end()
        if self._text[end : end + 1] == "?":
            beginning = self._text[at : at + 4]
            self._refuse(
                f"has a group that begins {beginning}, which is not supported; look-around, "
                "back references, conditions and the flags other than i, m and s are not"
            )
        if not group[0].endswith(")"):  # flags alone open nothing
            self._sums.append(Weight())
            if len(self._sums) > MAX_DEPTH + 1:
                _refuse(self._where, f"is too complex: groups nested deeper than {MAX_DEPTH}")
        return end

    def _escape(self, at: int) -> int:
        escape = _ESCAPE.match(self._text, at)
        if escape is None:
            self._refuse("ends in a backslash")
        return escape.end()

    def _take(self, weight: Weight) -> None:
        self._last = weight
        most, least = self._sums[-1]
        self._sums[-1] = Weight(most + weight.most, least + weight.least)
        if self._sums[-1].most > MAX_EXPRESSION_WEIGHT:
            self._refuse(
                f"is too complex: its counted repeats add up to more than "
                f"{MAX_EXPRESSION_WEIGHT:,} characters"
            )

    def _counted(self, at: int) -> int:
        counted = _COUNTED.match(self._text, at)
        if counted is None:
            self._refuse("has a brace that counts nothing; a literal one must be written \\{")
        least = min(int(counted[1][:9]), MAX_EXPRESSION_WEIGHT + 1)
        most = min(int((counted[3] or counted[1])[:9]), MAX_EXPRESSION_WEIGHT + 1)
        self._repeat(max(most, 1), least)
        return self._quantified(counted.end())

    def _repeat(self, most: int, least: int) -> None:
        """Makes the last item as many."""
        item, sums = self._last, self._sums[-1]
        self._sums[-1] = Weight(sums.most - item.most, sums.least - item.least)
        self._take(Weight(max(item.most, 1) * most, item.least * least))

    def _quantified(self, after: int) -> int:
        if self._text[after : after + 1] == "+":
            self._refuse("has a possessive quantifier, which is not supported")
        return after + (self._text[after : after + 1] == "?")  # lazy: the same texts

    def _character_class(self, at: int) -> int:
        position = at + 1 + (self._text[at + 1 : at + 2] == "^")
        first = position
        while position < len(self._text):
            character = self._text[position]
            if character == "]" and position > first:
                return position + 1
            pair = self._text[position : position + 2]
            if character in "[]" or pair in ("&&", "--", "~~"):
                self._refuse(f"has {character} in a class; it must be written \\{character}")
            position = self._escape(position) if character == "\\" else position + 1
        return self._refuse("has an unclosed class")

    def _refuse(self, problem: str) -> NoReturn:
        text = self._text if len(self._text) <= 48 else self._text[:47] + "…"
        _refuse(self._where, f"/{text}/ {problem}")


def _refuse(where: str, problem: str) -> NoReturn:
    raise InvalidParameterError(f"structured_outputs: {where} {problem}")
