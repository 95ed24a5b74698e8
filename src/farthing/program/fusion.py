"""Operations that the native player does as one, which spares writing what lies between them.

What each fusion gained is in bench/LOG.md. None changes a bit: every output is the same chain of
roundings. A value that a tap hands out, or that anyone else reads, is left as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from farthing.program.experts import ExpandedOp
from farthing.program.ops import (
    HiddenRows,
    Linear,
    LogitRows,
    RmsNorm,
    Scale,
    Softcap,
    Tap,
    Value,
    inputs,
)


@dataclass(frozen=True, slots=True)
class Head:
    """The logits, a few columns at a time, so that rows need not be kept for their argmax.

    From ``start``, or from nothing where the first stage makes the logits, stage by stage; what a
    Linear adds to is the logits so far.
    """

    out: Value
    start: Value | None
    stages: tuple[Linear | Scale | Softcap, ...]

    @property
    def products(self) -> tuple[Linear, ...]:
        """The stages with weights."""
        return tuple(stage for stage in self.stages if isinstance(stage, Linear))


PlayerOp = ExpandedOp | Head
"""What the native player plays."""


def reads(op: PlayerOp) -> tuple[Value, ...]:
    """The values that ``op`` reads, those it multiplies first."""
    if not isinstance(op, Head):
        return inputs(op)
    start = () if op.start is None else (op.start,)
    return tuple(stage.x for stage in op.products) + start


def fuse(ops: Sequence[ExpandedOp], output: Value) -> tuple[PlayerOp, ...]:
    """``ops``, which make the logits ``output``, with what goes together as one."""
    return tuple(_fuse_head(_norm_after_gather(ops), output))


def _norm_after_gather(ops: Sequence[ExpandedOp]) -> list[ExpandedOp]:
    """Norms that only gathers read become norms of the gathered rows: fewer, and not copied."""
    readers: dict[int, list[ExpandedOp]] = {}
    for op in ops:
        for value in inputs(op):
            readers.setdefault(value.id, []).append(op)
    norms = {
        op.out.id: op
        for op in ops
        if isinstance(op, RmsNorm)
        and readers.get(op.out.id)
        and all(isinstance(reader, LogitRows | HiddenRows) for reader in readers[op.out.id])
    }
    result: list[ExpandedOp] = []
    for op in ops:
        if isinstance(op, LogitRows | HiddenRows) and op.x.id in norms:
            result.append(replace(norms[op.x.id], out=op.out))
        elif isinstance(op, Tap) or op.out.id not in norms:
            result.append(op)
    return result


def _fuse_head(ops: Sequence[ExpandedOp], output: Value) -> list[PlayerOp]:
    """The operations that end in ``output`` and whose columns depend on nothing beside them."""
    producers = {op.out.id: op for op in ops if not isinstance(op, Tap)}
    readers = Counter(value.id for op in ops for value in inputs(op))
    stages: list[Linear | Scale | Softcap] = []
    value: Value | None = output
    while value is not None and readers[value.id] == (0 if value == output else 1):
        made = producers[value.id]
        if isinstance(made, Scale | Softcap):
            stages.append(made)
            value = made.x
        elif isinstance(made, Linear) and len(made.weights) == 1 and made.add != made.x:
            stages.append(made)
            value = made.add
        else:
            break
    stages.reverse()
    head = Head(output, value, tuple(stages))
    if not stages:  # the logits are copied to who asked for them, or searched
        return [*ops, head]
    inside = {stage.out.id for stage in stages} - {output.id}
    result: list[PlayerOp] = []
    for op in ops:
        if isinstance(op, Tap) or op.out.id not in {*inside, output.id}:
            result.append(op)
        elif op.out.id == output.id:
            result.append(head)
    return result
