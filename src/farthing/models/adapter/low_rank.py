"""Adds an adapter to a program: beside each touched linear operation, a low-rank pair of them.

``y = W x`` is followed by ``t = A x`` and ``z = B t + y``: the base's packed codes stay as they
are, where adding ``B A`` to them would round each once more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, NoReturn

from farthing.errors import ModelFormatError
from farthing.models.adapter.directory import Adapter, LowRankPair
from farthing.models.adapter.factors import FactorPart, InputFactor, OutputFactor
from farthing.models.checkpoint.checkpoint import EMBEDDING, LM_HEAD
from farthing.models.checkpoint.tensor import TensorSource
from farthing.program.ops import Linear, Op, Program, Value, WeightSlot

STACKED = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
}
"""Modules of Hugging Face models (Phi-3) that are several weights of a program; the rows of B
follow that order, and all parts share A."""

FactorSource = InputFactor | OutputFactor


@dataclass(frozen=True, slots=True)
class AdaptedProgram:
    """``program`` needs the base's weights and those in ``sources``."""

    program: Program
    sources: Mapping[str, FactorSource]


def apply_adapter(program: Program, adapter: Adapter) -> AdaptedProgram:
    """``program`` with ``adapter`` beside its linear operations.

    A module named ``lm_head`` is the output projection, the embeddings where they are tied; the
    look-up of embeddings never changes.

    Raises :class:`ModelFormatError` naming the tensor of the adapter for a module that the program
    has no linear operation for, and for a shape or a rank that does not fit.
    """
    return _Rewriting(program, adapter).rewrite()


@dataclass(frozen=True, slots=True)
class _Use:
    """A pair in an operation: the first row of its B for each weight (by index) it adds to."""

    pair: LowRankPair
    first_rows: Mapping[int, int]


@dataclass(slots=True)
class _Rewriting:
    program: Program
    adapter: Adapter
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    pairs: dict[str, LowRankPair] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    ops: list[Op] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    renumbered: dict[int, Value] = field(default_factory=dict)
    slots: list[WeightSlot] = field(default_factory=list)
    sources: dict[str, FactorSource] = field(default_factory=dict)

    def rewrite(self) -> AdaptedProgram:
        self.shapes = {slot.name: slot.shape for slot in self.program.weights}
        self.pairs = {pair.module: pair for pair in self.adapter.pairs}
        for op in self.program.ops:
            moved = self._move(op)
            if isinstance(op, Linear) and isinstance(moved, Linear) and (uses := self._uses(op)):
                self._take_slots(op)
                self.renumbered[op.out.id] = self._add_pairs(moved, uses)
        self.slots += self.program.weights[self._base_slots() :]
        for pair in self.adapter.pairs:
            if pair.module not in self.used:
                self._refuse_module(pair)
        output = self.renumbered[self.program.output.id]
        program = Program(tuple(self.ops), tuple(self.values), tuple(self.slots), output)
        return AdaptedProgram(program, self.sources)

    def _move(self, op: Op) -> Op:
        """Appends ``op`` with the values of the new program."""
        changes: dict[str, Any] = {
            each.name: self._renumber(value)
            for each in fields(op)
            if isinstance(value := getattr(op, each.name), Value)
        }
        moved: Op = replace(op, **changes)
        self.ops.append(moved)
        return moved

    def _renumber(self, value: Value) -> Value:
        if value.id not in self.renumbered:
            self.renumbered[value.id] = self._new_value(value, value.width)
        return self.renumbered[value.id]

    def _new_value(self, like: Value, width: int) -> Value:
        self.values.append(Value(len(self.values), like.rows, width))
        return self.values[-1]

    def _uses(self, op: Linear) -> list[_Use]:
        modules = [_module(weight) for weight in op.weights]
        uses = [
            _Use(self.pairs[module], {index: 0})
            for index, module in enumerate(modules)
            if module in self.pairs
        ]
        parent = modules[0].rpartition(".")[0]
        for stacked, names in STACKED.items():
            module = f"{parent}.{stacked}"
            if module in self.pairs and modules == [f"{parent}.{name}" for name in names]:
                ends = [
                    sum(self._outputs(op, i) for i in range(index)) for index in range(len(names))
                ]
                uses.append(_Use(self.pairs[module], dict(enumerate(ends))))
        for use in uses:
            self._check(op, use)
            self.used.add(use.pair.module)
        return uses

    def _outputs(self, op: Linear, index: int) -> int:
        return self.shapes[op.weights[index]][0]

    def _check(self, op: Linear, use: _Use) -> None:
        pair = use.pair
        outputs = sum(self._outputs(op, index) for index in use.first_rows)
        if pair.a.shape[1] != op.x.width:
            _fail(pair.a, f"has {pair.a.shape[1]} columns; {pair.module} takes {op.x.width}")
        if pair.b.shape[0] != outputs:
            _fail(pair.b, f"has {pair.b.shape[0]} rows; {pair.module} gives {outputs}")
        rank = self.adapter.config.rank_of(pair.module)
        if pair.rank != rank:
            _fail(pair.a, f"has rank {pair.rank}; {self.adapter.config.path.name} says {rank}")

    def _base_slots(self) -> int:
        return len(self.slots) - len(self.sources)

    def _take_slots(self, op: Linear) -> None:
        """Slots stay in order of first use: the base's up to those of ``op``, then its factors."""
        names = {*op.weights, *op.biases}
        base = self.program.weights
        last = max(index for index, slot in enumerate(base) if slot.name in names)
        self.slots += base[self._base_slots() : last + 1]

    def _add_pairs(self, op: Linear, uses: list[_Use]) -> Value:
        """Appends the pairs of ``op``, of the new program; returns the sum."""
        inner = self._new_value(op.x, sum(use.pair.rank for use in uses))
        a_names = []
        for use in uses:
            a_names.append(f"{use.pair.module}.lora_A.weight")
            self._add_source(a_names[-1], InputFactor(use.pair.a))
        self.ops.append(Linear(inner, op.x, tuple(a_names), (None,) * len(uses), None))
        b_names = []
        for index, weight in enumerate(op.weights):
            b_names.append(f"{_module(weight)}.lora_B.weight")
            shape = (self._outputs(op, index), inner.width)
            self._add_source(b_names[-1], OutputFactor(shape, self._parts(index, uses)))
        out = self._new_value(op.out, op.out.width)
        self.ops.append(Linear(out, inner, tuple(b_names), (None,) * len(b_names), op.out))
        return out

    def _parts(self, index: int, uses: list[_Use]) -> tuple[FactorPart, ...]:
        parts = []
        column = 0
        for use in uses:
            if index in use.first_rows:
                scale = self.adapter.config.scale_of(use.pair.module)
                parts.append(FactorPart(use.pair.b, use.first_rows[index], column, scale))
            column += use.pair.rank
        return tuple(parts)

    def _add_source(self, name: str, source: FactorSource) -> None:
        assert name not in self.sources, f"{name}: two operations with one weight"
        self.sources[name] = source
        outputs, inputs = source.shape
        self.slots.append(WeightSlot(name, (outputs, inputs)))

    def _refuse_module(self, pair: LowRankPair) -> NoReturn:
        if pair.module == _module(EMBEDDING, tied=False):
            _fail(pair.a, "adapts an embedding, which is not supported")
        routers = self.program.routers
        if routers and (".experts." in f"{pair.module}." or f"{pair.module}.weight" in routers):
            _fail(pair.a, "adapts a mixture of experts, which is not supported")
        linear = {
            _module(weight).rpartition(".")[2]
            for op in self.program.ops
            if isinstance(op, Linear)
            for weight in op.weights
        }
        _fail(
            pair.a,
            f"this model of {self.program.num_layers} layer(s) has no linear layer {pair.module}; "
            f"it has {', '.join(sorted(linear))}",
        )


def _module(weight: str, *, tied: bool = True) -> str:
    """The module a weight belongs to; ``tied``: the embeddings as output projection."""
    return (LM_HEAD if tied and weight == EMBEDDING else weight).removesuffix(".weight")


def _fail(tensor: TensorSource, problem: str) -> NoReturn:
    raise ModelFormatError(
        tensor.file, problem, field=f"tensor {tensor.name}", offset=tensor.offset
    )
