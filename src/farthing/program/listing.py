"""Prints a program, one operation a line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from itertools import takewhile
from typing import Any

from farthing.program.ops import Op, Program, Tap, Value

_POSITIONAL = {"x", "a", "b", "qkv", "table", "weight", "weights"}


def describe(program: Program) -> str:
    """A listing of ``program``: each operation with its inputs, weights and numbers.

    ``%3 (T, 96) = linear(%2, layer.{q,k}.weight)`` reads: value 3, a row of 96 for each token, is
    value 2 times the two weights, side by side. What is unset is left out.
    """
    lines = [_line(op) for op in program.ops]
    lines.append(f"logits: %{program.output.id}; weights: {len(program.weights)}")
    return "\n".join(lines)


def _line(op: Op) -> str:
    call = _snake(type(op).__name__) + _arguments(op)
    if isinstance(op, Tap):
        return call
    return f"%{op.out.id} ({op.out.rows.value}, {op.out.width}) = {call}"


def _arguments(record: Any) -> str:
    """The fields of a dataclass, without ``out``, defaults and what is None, empty or all None."""
    shown = []
    for field in fields(record):
        value = getattr(record, field.name)
        unset = value is None or (isinstance(value, tuple) and not any(value))
        if field.name != "out" and not unset and value != field.default:
            text = _text(value)
            shown.append(text if field.name in _POSITIONAL else f"{field.name}={text}")
    return f"({', '.join(shown)})"


def _text(value: Any) -> str:
    if isinstance(value, Value):
        return f"%{value.id}"
    if isinstance(value, tuple) and any(isinstance(item, str) for item in value):
        return _braces(value)
    if isinstance(value, tuple):
        return f"[{value[0]} .. {value[-1]}: {len(value)}]"
    if is_dataclass(value):
        return _snake(type(value).__name__) + _arguments(value)
    return str(value)


def _braces(names: Sequence[str | None]) -> str:
    """``a.q.w, a.k.w`` as ``a.{q,k}.w``, ``a.0, a.1, a.2`` as ``a.{0..2}``; none is ``-``."""
    known = [name for name in names if name is not None]
    if len(known) != len(names):
        return f"[{', '.join(name or '-' for name in names)}]"
    if len(known) == 1:
        return known[0]
    head = _common_prefix(known)
    tail = _common_prefix([name[len(head) :][::-1] for name in known])[::-1]
    middles = [name[len(head) : len(name) - len(tail)] for name in known]
    if len(middles) > 2 and middles == [str(number) for number in range(len(middles))]:
        middles = [f"0..{len(middles) - 1}"]
    return f"{head}{{{','.join(middles)}}}{tail}"


def _common_prefix(names: Sequence[str]) -> str:
    columns = zip(*names, strict=False)  # stops at the shortest name
    return "".join(column[0] for column in takewhile(lambda c: len(set(c)) == 1, columns))


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
