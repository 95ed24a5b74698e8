"""A program in two: a body that ends in hidden states, and a head that makes logits of them.

Where logits of many rows are needed later, a hidden state takes a hundredth of their memory; and
body and head together compute, bit for bit, what the whole does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any

from farthing.program.ops import (
    Embed,
    LogitRows,
    Op,
    Program,
    Rows,
    Tap,
    Value,
    WeightSlot,
)


def body(program: Program) -> Program:
    """``program`` up to the rows that need logits: its output is their final hidden state."""
    at, rows = _cut(program)
    ops = program.ops[: at + 1]
    return Program(ops, program.values[: rows.out.id + 1], _used(program, ops), rows.out)


def head(program: Program, states: str, count: int) -> Program:
    """What ``program`` does to the rows that need logits.

    It reads them, as the body gave them, from the weight ``states`` (count, width): a step's tokens
    are rows of it.
    """
    at, rows = _cut(program)
    width = rows.out.width
    table = WeightSlot(states, (count, width))
    values = [Value(0, Rows.TOKENS, width), Value(1, Rows.LOGITS, width)]
    ops: list[Op] = [Embed(values[0], states), LogitRows(values[1], values[0])]
    moved = {rows.out.id: values[1]}
    for op in program.ops[at + 1 :]:
        changes: dict[str, Any] = {}
        for field in fields(op):
            value = getattr(op, field.name)
            if isinstance(value, Value):
                if value.id not in moved:
                    assert field.name == "out", f"{op}: reads what the body does not hand over"
                    moved[value.id] = Value(len(values), value.rows, value.width)
                    values.append(moved[value.id])
                changes[field.name] = moved[value.id]
        ops.append(replace(op, **changes))
    weights = (table, *_used(program, program.ops[at + 1 :]))
    return Program(tuple(ops), tuple(values), weights, moved[program.output.id])


def _cut(program: Program) -> tuple[int, LogitRows]:
    """The one operation that keeps the rows that need logits, and its index."""
    found = [(i, op) for i, op in enumerate(program.ops) if isinstance(op, LogitRows)]
    assert len(found) == 1, f"{len(found)} operations keep the rows that need logits"
    return found[0]


def _used(program: Program, ops: Iterable[Op]) -> tuple[WeightSlot, ...]:
    """The weights of ``program`` that ``ops`` read, in its order."""
    names: set[str] = set()
    for op in ops:
        if isinstance(op, Tap):
            continue
        for field in fields(op):
            value = getattr(op, field.name)
            names.update(value if isinstance(value, tuple) else (value,))
    return tuple(slot for slot in program.weights if slot.name in names)
