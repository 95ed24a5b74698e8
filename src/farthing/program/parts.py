"""A program in parts, which together compute, bit for bit, what the whole does.

A body that ends in hidden states and a head that makes logits of them: where logits of many rows
are needed later, a hidden state takes a hundredth of their memory. And sections, so that what comes
before a change need not be computed again.
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
    inputs,
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
    at, _ = _cut(program)
    return section(program, at, len(program.ops), states, count)


def seams(program: Program) -> list[int]:
    """Indices of operations before which one value alone, of a step's rows, carries all there is.

    They begin behind the embedding and end where the rows that need logits are gathered: between
    any two of them, and from any to the end, is a :func:`section`.
    """
    last, _ = _cut(program)
    return [i for i in range(1, last + 1) if len(_carried(program, i)) == 1]


def section(program: Program, start: int, stop: int, states: str, count: int) -> Program:
    """The operations ``start`` to ``stop`` alone, bit for bit what they do in ``program``.

    ``start`` is a seam, and ``stop`` one or the end. A step's tokens are rows of the weight
    ``states`` (count, width), the value carried to ``start``. The output is what is carried to
    ``stop``, of the rows whose logits are wanted; at the end, the logits.
    """
    (carried,) = _carried(program, start)
    table = WeightSlot(states, (count, carried.width))
    values = [Value(0, Rows.TOKENS, carried.width)]
    ops: list[Op] = [Embed(values[0], states)]
    moved = {carried.id: values[0]}
    for op in program.ops[start:stop]:
        changes: dict[str, Any] = {}
        for field in fields(op):
            value = getattr(op, field.name)
            if isinstance(value, Value):
                if value.id not in moved:
                    assert field.name == "out", f"{op}: reads what is not carried to it"
                    moved[value.id] = Value(len(values), value.rows, value.width)
                    values.append(moved[value.id])
                changes[field.name] = moved[value.id]
        ops.append(replace(op, **changes))
    if stop == len(program.ops):
        output = moved[program.output.id]
    else:
        (last,) = _carried(program, stop)
        output = Value(len(values), Rows.LOGITS, last.width)
        values.append(output)
        ops.append(LogitRows(output, moved[last.id]))
    weights = (table, *_used(program, program.ops[start:stop]))
    return Program(tuple(ops), tuple(values), weights, output)


def _carried(program: Program, at: int) -> list[Value]:
    """The values that are made before operation ``at`` and read from there on."""
    made = {op.out.id for op in program.ops[:at] if not isinstance(op, Tap)}
    read = {value.id: value for op in program.ops[at:] for value in inputs(op)}
    return [value for value in read.values() if value.id in made]


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
