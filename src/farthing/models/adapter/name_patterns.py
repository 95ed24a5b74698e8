"""``rank_pattern`` and ``alpha_pattern``: numbers for the modules whose names a pattern ends."""

from __future__ import annotations

import re
from collections.abc import Mapping

from farthing.models.checkpoint.fields import Fields

MAX_PATTERNS = 1 << 16
MAX_EXPRESSIONS = 16
MAX_EXPRESSION = 256  # characters
MAX_REPEATS = 2

_LITERAL = re.compile(r"\^?([\w.-]+)\$?", re.ASCII)
_REFUSED = re.compile(r"\)[*+?{]|\(\?(?!:)|\{|\\[1-9]")
_REPEAT = re.compile(r"(?<!\\)[*+]")


class NamePatterns:
    """Values by pattern. A name takes that of the first pattern that it ends with, at a dot.

    Patterns are regular expressions in the ``peft`` library, and mostly plain names in files. Here
    an expression is bounded so that matching takes polynomial time, and its number of steps stays
    small whatever the file says: no repeated group, two ``*`` or ``+``.
    """

    def __init__(self, fields: Fields, values: Mapping[str, float]) -> None:
        """``fields`` has the patterns as keys and raises for one that is refused."""
        self._by_ending: dict[str, tuple[int, float]] = {}
        self._by_name: dict[str, tuple[int, float]] = {}
        self._expressions: list[tuple[re.Pattern[str], tuple[int, float]]] = []
        for position, (pattern, value) in enumerate(values.items()):
            entry = (position, value)
            literal = _LITERAL.fullmatch(pattern)
            if literal is not None:
                kind = self._by_name if pattern.startswith("^") else self._by_ending
                kind.setdefault(literal[1], entry)
            else:
                self._expressions.append((_compile(fields, pattern), entry))
                if len(self._expressions) > MAX_EXPRESSIONS:
                    fields.fail(pattern, f"is one of more than {MAX_EXPRESSIONS} expressions")

    def find(self, name: str) -> float | None:
        """The value for the module ``name``, or None if no pattern fits."""
        parts = name.split(".")
        found = [
            entry
            for ending in (".".join(parts[i:]) for i in range(len(parts)))
            if (entry := self._by_ending.get(ending)) is not None
        ]
        if name in self._by_name:
            found.append(self._by_name[name])
        found += [entry for expression, entry in self._expressions if expression.fullmatch(name)]
        return min(found)[1] if found else None


def _compile(fields: Fields, pattern: str) -> re.Pattern[str]:
    if len(pattern) > MAX_EXPRESSION:
        fields.fail(
            pattern[:MAX_EXPRESSION],
            f"has {len(pattern)} characters; an expression may have {MAX_EXPRESSION}",
        )
    if _REFUSED.search(pattern) or len(_REPEAT.findall(pattern)) > MAX_REPEATS:
        fields.fail(
            pattern,
            f"may not repeat a group, look around or have more than {MAX_REPEATS} of * and +; "
            "name the modules instead",
        )
    try:
        return re.compile(rf"(.*\.)?({pattern})")
    except (re.error, RecursionError, OverflowError) as error:
        fields.fail(pattern, f"is not a regular expression ({error})")
