"""Parts of a grammar as GBNF spells them, for messages about them."""

from __future__ import annotations

from farthing.sampling.grammar.gbnf import Choice, Node, Reference, Repeat, Sequence, Set, Text

_LONGEST = 40
_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\"}


def excerpt(run: tuple[Node, ...]) -> str:
    """The beginning of items in a row."""
    text = " ".join(spelled(item) for item in run)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def spelled(node: Node) -> str:
    """A node in one line, with brackets around what needs them beside others."""
    match node:
        case Text(text):
            return '"' + "".join(_character(ord(c), '"') for c in text) + '"'
        case Set(ranges, negated):
            inside = "".join(
                _character(first, "]^[-") + ("-" + _character(last, "]^[-")) * (last > first)
                for first, last in ranges
            )
            return f"[{'^' * negated}{inside}]"
        case Reference(name):
            return name
        case Repeat(item, least, most):
            marks = {(0, None): "*", (1, None): "+", (0, 1): "?"}
            counts = f"{least}" if least == most else f"{least},{'' if most is None else most}"
            one = f"({spelled(item)})" if isinstance(item, Repeat) else spelled(item)
            return one + marks.get((least, most), f"{{{counts}}}")
        case Sequence(items):
            return "(" + " ".join(map(spelled, items)) + ")"
        case Choice(options):
            return "(" + " | ".join(map(spelled, options)) + ")"


def _character(code: int, marks: str) -> str:
    character = chr(code)
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character in marks:
        return f"\\{character}" if character != "^" else "\\x5E"
    if character.isprintable():
        return character
    return f"\\U{code:08X}" if code > 0xFFFF else f"\\u{code:04X}"
