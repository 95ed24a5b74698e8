"""Turns a :class:`Program` into the native player's terms: buffers, and who reads and writes them.

Plain data in, plain data out; fusion lives here.

Fused today: rounding to int8 with the norm or gate that produces the value (once for all linear
ops that read it), rope with the KV store, a residual add with the linear op before it, and stacked
matrices (qkv, gate and up) as one op. A mixture of experts is played in steps (experts.py).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from farthing.errors import UnsupportedOperationError
from farthing.program.experts import (
    Combine,
    ExpertLinear,
    PlayerOp,
    Routing,
    expand,
    find_routing,
)
from farthing.program.ops import (
    Gated,
    HiddenRows,
    Linear,
    Program,
    RmsNorm,
    Rows,
    Scale,
    Softcap,
    Tap,
    Value,
    inputs,
)

NOWHERE = -1


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
    (Linear: x, add). ``segments`` has the int8 input of each of a Linear's weights or an
    ExpertLinear's stacks, or NOWHERE where they read float.
    """

    op: PlayerOp | None
    inputs: tuple[int, ...]
    out: int
    rounded: tuple[int, ...] = ()
    segments: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LoweredProgram:
    """``outputs`` are the float buffers the caller supplies: logits, hidden states, taps.

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
    return _Lowering(expand(program), program.output, activation_group).lower(find_routing(program))


def _overwritten(op: PlayerOp) -> Value | None:
    """The operand that ``op`` can put its result in place of."""
    match op:
        case Softcap() | Scale():
            return op.x
        case Linear() | Combine() if op.add is not None and op.add.id != op.x.id:
            return op.add
        case _:
            return None


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
        self._place_output()
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
            multiplied = isinstance(op, Linear | ExpertLinear)
            for position, value in enumerate(inputs(op)):
                self.last_use[value.id] = index
                if not (multiplied and position == 0):
                    self.read_as_float.add(value.id)
            if isinstance(op, Linear | ExpertLinear):
                for group in self._input_groups(op):
                    if group:
                        self.groups[op.x.id].add(group)
                    else:
                        self.read_as_float.add(op.x.id)

    def _input_groups(self, op: Linear | ExpertLinear) -> list[int]:
        """The int8 group each weight or stack of ``op`` reads, 0 for float."""
        if isinstance(op, Linear):
            return [self.activation_group(weight) for weight in op.weights]
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
        return groups

    def _place_output(self) -> None:
        """Gives the logits the caller's memory, and lets ops that work in place write there."""
        value = self.output
        buffer = self._output(value, "logits")
        producers = {
            op.out.id: (index, op) for index, op in enumerate(self.ops) if not isinstance(op, Tap)
        }
        self.place[value.id] = buffer
        while True:
            index, producer = producers[value.id]
            operand = _overwritten(producer)
            if operand is None or self.last_use[operand.id] != index:
                return  # or someone still reads what would be overwritten
            value = operand
            self.place[value.id] = buffer

    def _lower_op(self, index: int, op: PlayerOp) -> None:
        match op:
            case Tap():
                out = self._output(op.x, f"tap:{op.name}")
                self._emit(op, out)
            case HiddenRows():
                self.place[op.out.id] = self._output(op.out, "hidden")
                self._emit(op, self.place[op.out.id])
            case RmsNorm() | Gated():
                self._emit_with_rounding(op)
            case Linear():
                x, add = self.place.get(op.x.id, NOWHERE), self._addend(index, op)
                self._multiply(op, (x, add))
            case ExpertLinear():
                self._multiply(op, (self.place.get(op.x.id, NOWHERE),))
            case Combine():
                x, weights = self.place[op.x.id], self.place[op.weights.id]
                read = (x, weights, self._addend(index, op))
                self.instructions.append(Instruction(op, read, self._float(op.out)))
                self._round(op.out)
            case _:
                self._emit(op, self._float(op.out))
                self._round(op.out)

    def _multiply(self, op: Linear | ExpertLinear, read: tuple[int, ...]) -> None:
        segments = tuple(
            self.rounded[op.x.id, group] if group else NOWHERE for group in self._input_groups(op)
        )
        self.instructions.append(Instruction(op, read, self._float(op.out), segments=segments))
        self._round(op.out)

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
        read = tuple(self.place[value.id] for value in inputs(op))
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
        done = [v for v in dict.fromkeys(inputs(op)) if self.last_use[v.id] == index]
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
