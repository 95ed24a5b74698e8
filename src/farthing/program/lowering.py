"""Turns a :class:`Program` into the native player's terms: buffers, and who reads and writes them.

Plain data in, plain data out; fusion lives here.

Fused here: rounding to int8 with the norm, gate or attention that produces the value (once for all
linear ops that read it), rope with the KV store, a residual add with the linear op before it, and
stacked matrices (qkv, gate and up) as one op; in fusion.py, before that, operations that become
one. A mixture of experts is played in steps (experts.py). What each gains is in bench/LOG.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from farthing.errors import UnsupportedOperationError
from farthing.program.experts import Combine, ExpertLinear, Routing, expand, find_routing
from farthing.program.fusion import Head, PlayerOp, fuse, reads
from farthing.program.ops import (
    Attention,
    Gated,
    HiddenRows,
    Linear,
    Program,
    RmsNorm,
    Rows,
    Tap,
    Value,
)

NOWHERE = -1

SPAN_COLS = 32
"""Rounded columns are filled up to whole groups and whole spans of so many (core/types.h)."""


@dataclass(frozen=True, slots=True)
class FloatBuffer:
    """(rows, width) float32. ``output`` names what the caller of a step receives in it."""

    rows: Rows
    width: int
    output: str | None = None


@dataclass(frozen=True, slots=True)
class Int8Buffer:
    """(rows, cols) int8 codes with one scale for each ``group`` columns."""

    rows: Rows
    cols: int
    group: int


@dataclass(frozen=True, slots=True)
class Instruction:
    """One op and the buffers it works on; buffers are indices into :class:`LoweredProgram`.

    ``op`` None rounds ``inputs[0]`` to ``rounded``. ``inputs`` follow the op's operand order
    (Linear: x, add; Head: x of each product, start). ``segments`` has the int8 input of each weight
    of an op, or of an ExpertLinear's stacks, or NOWHERE where they read float.
    """

    op: PlayerOp | None
    inputs: tuple[int, ...]
    out: int
    rounded: tuple[int, ...] = ()
    segments: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LoweredProgram:
    """``outputs`` are the float buffers the caller supplies: logits, hidden states, taps.

    Those of the logits have KEPT rows.
    Buffers of EXPERT rows have each row once for each of its experts; ``routing`` says how many.
    """

    float_buffers: tuple[FloatBuffer, ...]
    int8_buffers: tuple[Int8Buffer, ...]
    outputs: tuple[int, ...]
    instructions: tuple[Instruction, ...]
    routing: Routing | None = None


def lower(program: Program, activation_group: Callable[[str], int]) -> LoweredProgram:
    """Lowers ``program``.

    ``activation_group(weight)`` is the int8 group of the activations that weight's kernel reads,
    0 for kernels that read float.

    Raises :class:`UnsupportedOperationError` for what the native player lacks.
    """
    ops = fuse(expand(program), program.output)
    return _Lowering(ops, program.output, activation_group).lower(find_routing(program))


def _overwritten(op: Linear | Combine) -> Value | None:
    """The operand that ``op`` can put its result in place of."""
    return op.add if op.add is not None and op.add.id != op.x.id else None


Product = Linear | ExpertLinear | Head
"""Operations with matrices, whose input may have to be rounded."""


@dataclass(slots=True)
class _Lowering:
    ops: tuple[PlayerOp, ...]
    output: Value
    activation_group: Callable[[str], int]
    floats: list[FloatBuffer] = field(default_factory=list)
    int8s: list[Int8Buffer] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)
    place: dict[int, int] = field(default_factory=dict)  # value id -> float buffer
    rounded: dict[tuple[int, int], int] = field(default_factory=dict)  # (value, group) -> int8
    free_floats: dict[FloatBuffer, list[int]] = field(default_factory=lambda: defaultdict(list))
    free_int8s: dict[Int8Buffer, list[int]] = field(default_factory=lambda: defaultdict(list))
    last_use: dict[int, int] = field(default_factory=dict)
    groups: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    read_as_float: set[int] = field(default_factory=set)

    def lower(self, routing: Routing | None) -> LoweredProgram:
        self._find_uses()
        self.floats.append(FloatBuffer(Rows.KEPT, self.output.width, "logits"))
        self.outputs.append(0)
        for index, op in enumerate(self.ops):
            self._lower_op(index, op)
            self._release(index, op)
        return LoweredProgram(
            tuple(self.floats),
            tuple(self.int8s),
            tuple(self.outputs),
            tuple(self.instructions),
            routing,
        )

    def _find_uses(self) -> None:
        for index, op in enumerate(self.ops):
            multiplied = 0
            if isinstance(op, Product):
                multiplied = len(op.products) if isinstance(op, Head) else 1
            for position, value in enumerate(reads(op)):
                self.last_use[value.id] = index
                if position >= multiplied:
                    self.read_as_float.add(value.id)
            if isinstance(op, Product):
                for x, group in self._inputs(op):
                    if group:
                        self.groups[x.id].add(group)
                    else:
                        self.read_as_float.add(x.id)

    def _inputs(self, op: Product) -> list[tuple[Value, int]]:
        """What each weight or stack of ``op`` multiplies, and its int8 group, 0 for float."""
        if isinstance(op, Head):
            return [pair for stage in op.products for pair in self._inputs(stage)]
        if isinstance(op, Linear):
            return [(op.x, self.activation_group(weight)) for weight in op.weights]
        groups: list[int] = []
        for stack in op.stacks:
            found: dict[int, str] = {}
            for weight in stack:
                found.setdefault(self.activation_group(weight), weight)
            if len(found) > 1:
                first, second, *_ = found.values()
                raise UnsupportedOperationError(
                    f"{first} and {second} need their input in two forms; the experts of a layer "
                    "must be stored alike"
                )
            groups += found
        return [(op.x, group) for group in groups]

    def _lower_op(self, index: int, op: PlayerOp) -> None:
        match op:
            case Tap():
                out = self._output(op.x, f"tap:{op.name}")
                self._emit(op, out)
            case HiddenRows():
                self.place[op.out.id] = self._output(op.out, "hidden")
                self._emit(op, self.place[op.out.id])
            case RmsNorm() | Gated():
                if op.out.rows is Rows.HIDDEN and reads(op)[0].rows is Rows.TOKENS:
                    self.place[op.out.id] = self._output(op.out, "hidden")
                self._emit_with_rounding(op)
            case Attention():
                self._attend(op)
            case Linear():
                self._multiply(op, (self._place(op.x), self._addend(index, op)))
            case ExpertLinear():
                self._multiply(op, (self._place(op.x),))
            case Head():
                start = NOWHERE if op.start is None else self.place[op.start.id]
                read = (*(self._place(stage.x) for stage in op.products), start)
                self.instructions.append(
                    Instruction(op, read, self.outputs[0], segments=self._segments(op))
                )
            case Combine():
                x, weights = self.place[op.x.id], self.place[op.weights.id]
                read = (x, weights, self._addend(index, op))
                self.instructions.append(Instruction(op, read, self._float(op.out)))
                self._round(op.out)
            case _:
                self._emit(op, self._float(op.out))
                self._round(op.out)

    def _place(self, value: Value) -> int:
        """Where ``value`` is as floats, NOWHERE if nobody reads it so."""
        return self.place.get(value.id, NOWHERE)

    def _segments(self, op: Product) -> tuple[int, ...]:
        return tuple(
            self.rounded[x.id, group] if group else NOWHERE for x, group in self._inputs(op)
        )

    def _multiply(self, op: Linear | ExpertLinear, read: tuple[int, ...]) -> None:
        segments = self._segments(op)
        self.instructions.append(Instruction(op, read, self._float(op.out), segments=segments))
        self._round(op.out)

    def _attend(self, op: Attention) -> None:
        """A kv head's columns are rounded where they are made, if that fills nothing up."""
        out = self._float(op.out)
        columns = op.num_heads // op.num_kv_heads * op.head_dim
        rounded = self._int8s(op.out)
        whole = tuple(i for i in rounded if columns % max(self.int8s[i].group, SPAN_COLS) == 0)
        self.instructions.append(Instruction(op, (self.place[op.qkv.id],), out, whole))
        if rest := tuple(i for i in rounded if i not in whole):
            self.instructions.append(Instruction(None, (out,), NOWHERE, rest))

    def _addend(self, index: int, op: Linear | Combine) -> int:
        """The buffer of ``op.add``, which the sum replaces if nobody reads it again."""
        add = NOWHERE if op.add is None else self.place[op.add.id]
        dead = _overwritten(op)
        if dead is not None and self.last_use[dead.id] == index and not self._placed(op.out):
            self.place[op.out.id] = self.place.pop(dead.id)
        return add

    def _emit_with_rounding(self, op: RmsNorm | Gated) -> None:
        out = NOWHERE
        if op.out.id in self.read_as_float or self._placed(op.out):
            out = self._float(op.out)
        rounded = self._int8s(op.out)
        if out == NOWHERE and not rounded:  # nobody reads it
            out = self._float(op.out)
        self.instructions.append(Instruction(op, (self.place[op.x.id],), out, rounded))

    def _emit(self, op: PlayerOp, out: int) -> None:
        read = tuple(self.place[value.id] for value in reads(op))
        self.instructions.append(Instruction(op, read, out))

    def _round(self, value: Value) -> None:
        if rounded := self._int8s(value):
            self.instructions.append(Instruction(None, (self.place[value.id],), NOWHERE, rounded))

    def _placed(self, value: Value) -> bool:
        return value.id in self.place

    def _output(self, value: Value, name: str) -> int:
        self.floats.append(FloatBuffer(value.rows, value.width, name))
        self.outputs.append(len(self.floats) - 1)
        return self.outputs[-1]

    def _float(self, value: Value) -> int:
        if not self._placed(value):
            wanted = FloatBuffer(value.rows, value.width)
            if self.free_floats[wanted]:
                self.place[value.id] = self.free_floats[wanted].pop()
            else:
                self.floats.append(wanted)
                self.place[value.id] = len(self.floats) - 1
        return self.place[value.id]

    def _int8s(self, value: Value) -> tuple[int, ...]:
        indices = []
        for group in sorted(self.groups.get(value.id, ())):
            wanted = Int8Buffer(value.rows, value.width, group)
            if self.free_int8s[wanted]:
                index = self.free_int8s[wanted].pop()
            else:
                self.int8s.append(wanted)
                index = len(self.int8s) - 1
            self.rounded[value.id, group] = index
            indices.append(index)
        return tuple(indices)

    def _release(self, index: int, op: PlayerOp) -> None:
        """Returns the buffers of values read for the last time, and of results nobody reads."""
        done = [v for v in dict.fromkeys(reads(op)) if self.last_use[v.id] == index]
        kept = NOWHERE
        if not isinstance(op, Tap):
            if op.out.id in self.last_use:
                kept = self.place.get(op.out.id, NOWHERE)
            else:
                done.append(op.out)
        for value in done:
            buffer = self.place.pop(value.id, NOWHERE)
            if buffer not in (kept, NOWHERE) and not self.floats[buffer].output:
                self.free_floats[self.floats[buffer]].append(buffer)
            for group in self.groups.get(value.id, ()):
                int8 = self.rounded.pop((value.id, group))
                self.free_int8s[self.int8s[int8]].append(int8)
