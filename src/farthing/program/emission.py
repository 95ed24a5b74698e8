"""Hands a lowered program to the native player, instruction by instruction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from farthing import _native
from farthing.config import Rope
from farthing.program.experts import Combine, ExpertLinear, Route
from farthing.program.fusion import Head
from farthing.program.lowering import NOWHERE, Instruction, LoweredProgram
from farthing.program.ops import (
    Add,
    Attention,
    Embed,
    Gated,
    HiddenRows,
    Linear,
    LogitRows,
    RmsNorm,
    Scale,
    Softcap,
    Tap,
)
from farthing.program.rope import scale_inverse_frequencies
from farthing.program.weights import NativeWeight

_Product = tuple[_native.Matrix, list[float], int]
"""A matrix, its bias or nothing, and the int8 buffer it reads."""


def emit(
    lowered: LoweredProgram, weights: Mapping[str, NativeWeight], max_rows: int, isa: str
) -> _native.Program:
    """Hands ``lowered`` to the native player, in passes of up to ``max_rows`` rows."""
    native = _native.Program(max_rows, isa)
    if lowered.routing is not None:
        native.routing(lowered.routing.num_experts, lowered.routing.experts_per_token)
    for buffer in lowered.float_buffers:
        add = native.float_buffer if buffer.output is None else native.output
        add(buffer.rows.value, buffer.width)
    for int8 in lowered.int8_buffers:
        native.int8_buffer(int8.rows.value, int8.cols, int8.group)
    emitter = _Emitter(native, weights, {})
    for instruction in lowered.instructions:
        emitter.emit(instruction)
    return native


@dataclass(slots=True)
class _Emitter:
    native: _native.Program
    weights: Mapping[str, NativeWeight]
    ropes: dict[Rope, int]

    def emit(self, i: Instruction) -> None:
        match i.op:
            case None:
                self.native.quantize(i.inputs[0], list(i.rounded))
            case Embed(table=table):
                self.native.embed(self._matrix(table), i.out)
            case RmsNorm(weight=weight, eps=eps):
                vector = self._vector(weight)
                self.native.rms_norm(i.inputs[0], vector, eps, i.out, list(i.rounded))
            case Linear():
                self._linear(i, i.op)
            case Head():
                self._head(i, i.op)
            case Attention():
                self._attention(i, i.op)
            case Gated(activation=activation):
                self.native.gated(i.inputs[0], activation, i.out, list(i.rounded))
            case Route(normalize=normalize):
                self.native.route(i.inputs[0], normalize, i.out)
            case ExpertLinear(stacks=stacks):
                matrices = [[self._matrix(name) for name in stack] for stack in stacks]
                pairs = list(zip(matrices, i.segments, strict=True))
                self.native.expert_linear(i.inputs[0], pairs, i.out)
            case Combine():
                x, weights, add = i.inputs
                self.native.combine(x, weights, add, i.out)
            case Add():
                self.native.add(i.inputs[0], i.inputs[1], i.out)
            case Scale(factor=factor):
                self.native.scale(i.inputs[0], factor, i.out)
            case Softcap(cap=cap):
                self.native.softcap(i.inputs[0], cap, i.out)
            case LogitRows() | HiddenRows() | Tap():
                self.native.copy_rows(i.inputs[0], i.out)
            case _:
                raise AssertionError(f"lowering let through {i.op!r}")

    def _linear(self, i: Instruction, op: Linear) -> None:
        products = [
            self._product(weight, bias, rounded)
            for weight, bias, rounded in zip(op.weights, op.biases, i.segments, strict=True)
        ]
        self.native.linear(i.inputs[0], products, i.inputs[1], i.out)

    def _product(self, weight: str, bias: str | None, rounded: int) -> _Product:
        return self._matrix(weight), [] if bias is None else self._vector(bias), rounded

    def _head(self, i: Instruction, op: Head) -> None:
        *xs, start = i.inputs
        products = iter(zip(xs, i.segments, strict=True))
        stages: list[tuple[int, _Product] | tuple[str, float]] = []
        for stage in op.stages:
            match stage:
                case Linear(weights=(weight,), biases=(bias,)):
                    x, rounded = next(products)
                    stages.append((x, self._product(weight, bias, rounded)))
                case Scale(factor=factor):
                    stages.append(("scale", factor))
                case Softcap(cap=cap):
                    stages.append(("softcap", cap))
        self.native.head(start, stages, i.out)

    def _attention(self, i: Instruction, op: Attention) -> None:
        self.native.attention(
            qkv=i.inputs[0],
            out=i.out,
            layer=op.layer,
            num_heads=op.num_heads,
            num_kv_heads=op.num_kv_heads,
            head_dim=op.head_dim,
            scale=op.scale,
            softcap=op.softcap or 0.0,
            window=op.window or 0,
            rope=NOWHERE if op.rope is None else self._rope(op.rope),
            q_norm=[] if op.q_norm is None else self._vector(op.q_norm),
            k_norm=[] if op.k_norm is None else self._vector(op.k_norm),
            norm_eps=op.norm_eps,
            rounded=list(i.rounded),
        )

    def _rope(self, rope: Rope) -> int:
        if rope not in self.ropes:
            base = _native.rope_inverse_frequencies(rope.theta, rope.dim).tolist()
            frequencies = scale_inverse_frequencies(base, rope)
            magnitude = 1.0 if rope.scaling is None else rope.scaling.magnitude
            self.ropes[rope] = self.native.rope(frequencies, magnitude)
        return self.ropes[rope]

    def _matrix(self, name: str) -> _native.Matrix:
        weight = self.weights[name]
        assert isinstance(weight, _native.Matrix)
        return weight

    def _vector(self, name: str) -> list[float]:
        weight = self.weights[name]
        assert isinstance(weight, np.ndarray)
        return [float(x) for x in weight]
