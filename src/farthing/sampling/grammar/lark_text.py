"""Strings, sets of characters and counts of repeats as Lark spells them."""

from __future__ import annotations

from farthing.sampling.grammar.gbnf import Set


def lark_count(least: int, most: int | None) -> str:
    """What stands behind what is repeated; ``most`` None: without end."""
    marks = {(0, None): "*", (1, None): "+", (0, 1): "?"}
    return marks.get((least, most), f"{{{least},{'' if most is None else most}}}")


def lark_string(text: str) -> str:
    """A string; of controls and marks their numbers."""
    return '"' + "".join(c if _is_plain(c) else f"\\u{ord(c):04x}" for c in text) + '"'


def _is_plain(character: str) -> bool:
    return ord(character) > 0xFFFF or (character.isprintable() and character not in '"\\')


def lark_class(node: Set) -> str:
    """An expression of one character."""
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
