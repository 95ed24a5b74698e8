"""The native executor: plays a lowered program in one call, without the GIL, on its own threads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from farthing import _native, machine
from farthing.config import Rope
from farthing.errors import FarthingError
from farthing.program.experts import Combine, ExpertLinear, Route
from farthing.program.lowering import NOWHERE, Instruction, LoweredProgram, lower
from farthing.program.ops import (
    Add,
    Attention,
    Embed,
    Gated,
    HiddenRows,
    Linear,
    LogitRows,
    Program,
    RmsNorm,
    Scale,
    Softcap,
    Tap,
)
from farthing.program.rope import scale_inverse_frequencies
from farthing.program.step import StepBatch, StepOutput
from farthing.program.weights import NativeWeight

FloatArray = NDArray[np.float32]
KvDtype = Literal["fp16", "int8", "fp32"]
"""Types in which keys and values are stored; int8 with a float32 scale a token and kv head."""

FloatMode = _native.FloatMode
"""Context manager: rounding and denormal mode of the numerics, the caller's restored after it."""


class KvCache:
    """The memory of a paged KV cache: ``num_blocks`` blocks of 16 tokens of every layer.

    Pages are touched, and so counted by the system, when tokens are first stored in them.
    """

    def __init__(
        self, *, dtype: KvDtype, num_layers: int, num_kv_heads: int, head_dim: int, num_blocks: int
    ) -> None:
        self.dtype = dtype
        self.pool = _native.KvPool(dtype, num_layers, num_kv_heads, head_dim, num_blocks)

    @property
    def num_blocks(self) -> int:
        """Blocks in the pool."""
        return self.pool.num_blocks

    @property
    def nbytes(self) -> int:
        """Bytes of the whole pool."""
        return self.pool.nbytes

    @property
    def block_bytes(self) -> int:
        """Bytes of one block."""
        return self.pool.block_bytes


def thread_team(num_threads: int, cpus: int | None = None) -> _native.ThreadPool:
    """Threads to play passes on, the caller's included.

    Of more threads than ``cpus``, by default those within the process's affinity and quota, only
    that many are awake at a time: the others would spend the time of those that work.

    Raises :class:`FarthingError` when the system refuses a thread.
    """
    try:
        return _native.ThreadPool(num_threads, cpus or machine.usable_cpus())
    except RuntimeError as error:
        raise FarthingError(f"num_threads={num_threads}: {error}") from None


@dataclass(frozen=True, slots=True)
class InstructionTiming:
    """One instruction of a pass, from the end of the one before it to its own."""

    name: str  # its kind
    weight_bytes: int  # packed weights it read; 0 where the pass chose which
    seconds: float
    tiles: int  # pieces that threads took it in


class NativeExecutor:
    """Plays one program over one set of weights.

    ``max_rows`` bounds the rows of a pass and so the workspace, which does not depend on the
    length of any context. ``cpus`` is as in :func:`thread_team`. One caller at a time: a pass
    overwrites the last one's results.
    """

    def __init__(
        self,
        program: Program,
        weights: Mapping[str, NativeWeight],
        *,
        num_threads: int,
        max_rows: int = 512,
        isa: str | None = None,
        cpus: int | None = None,
    ) -> None:
        self.program = program
        self.weights = weights
        self.max_rows = max_rows
        self._threads = thread_team(num_threads, cpus)
        self._lowered = lower(program, lambda name: _activation_group(weights[name]))
        with FloatMode():  # constants round on their way, and rope frequencies are made
            self._native = _emit(self._lowered, weights, max_rows, isa or machine.active_isa())
        self._outputs: dict[str, FloatArray] = {}

    @property
    def threads(self) -> _native.ThreadPool:
        """The threads of a pass, for work between passes: they would be in each other's way."""
        return self._threads

    @property
    def num_threads(self) -> int:
        """Threads that play a pass, the caller's included."""
        return self._threads.num_threads

    @property
    def workspace_bytes(self) -> int:
        """Bytes of intermediate values, independent of context length."""
        return self._native.workspace_bytes

    def set_profiling(self, on: bool) -> None:
        """Whether passes from now on note how long each instruction takes."""
        self._native.set_profiling(on)

    def profile(self) -> list[InstructionTiming]:
        """The last pass, instruction by instruction; empty without :meth:`set_profiling`."""
        return [InstructionTiming(*timing) for timing in self._native.profile()]

    def run(self, batch: StepBatch, kv: KvCache) -> StepOutput:
        """Runs one pass over at most ``max_rows`` rows, storing k and v in ``kv``.

        The arrays returned are overwritten by the next pass.

        Raises ``ValueError`` naming the array when an index is outside its range.
        """
        rows = {"T": len(batch.tokens), "R": len(batch.logit_rows), "H": len(batch.hidden_rows)}
        buffers = [self._lowered.float_buffers[i] for i in self._lowered.outputs]
        arrays = [self._output(str(b.output), rows[b.rows.value], b.width) for b in buffers]
        self._native.run(
            self._threads,
            kv.pool,
            batch.tokens,
            batch.positions,
            batch.row_offsets,
            batch.block_tables,
            batch.logit_rows,
            batch.hidden_rows,
            arrays,
        )
        named = {str(b.output): a for b, a in zip(buffers, arrays, strict=True)}
        logits = named.pop("logits")
        hidden = named.pop("hidden", None)
        return StepOutput(logits, hidden, {k.removeprefix("tap:"): v for k, v in named.items()})

    def _output(self, name: str, rows: int, width: int) -> FloatArray:
        array = self._outputs.get(name)
        if array is None or array.shape[0] < rows:
            array = self._outputs[name] = np.empty((rows, width), np.float32)
        return array[:rows]


def _activation_group(weight: NativeWeight) -> int:
    return weight.activation_group if isinstance(weight, _native.Matrix) else 0


def _emit(
    lowered: LoweredProgram, weights: Mapping[str, NativeWeight], max_rows: int, isa: str
) -> _native.Program:
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
        segments = [
            (self._matrix(weight), [] if bias is None else self._vector(bias), rounded)
            for weight, bias, rounded in zip(op.weights, op.biases, i.segments, strict=True)
        ]
        self.native.linear(i.inputs[0], segments, i.inputs[1], i.out)

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
