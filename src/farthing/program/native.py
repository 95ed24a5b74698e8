"""The native executor: plays a lowered program in one call, without the GIL, on its own threads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from farthing import _native, machine
from farthing.errors import FarthingError
from farthing.program.emission import emit
from farthing.program.kv_types import BITS, KV_SIDES, LARGEST_CODE, SCALE_BYTES, KvDtype
from farthing.program.lowering import lower
from farthing.program.ops import Program
from farthing.program.step import StepBatch, StepOutput
from farthing.program.weights import FloatArray, NativeWeight

_BLOCK_TOKENS = 16
"""``kBlockTokens`` of ``csrc/core/types.h``."""

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
        self.head_dim = head_dim
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

    def copy_blocks(self, copies: Iterable[tuple[int, int]]) -> None:
        """Copies whole blocks, each a source and a target, in their order.

        Raises ``ValueError`` for a block that is not there.
        """
        for source, target in copies:
            self.pool.copy_block(source, target)

    def block(self, index: int) -> NDArray[np.uint8]:
        """The bytes of one block, (block_bytes,), not a copy of them.

        Raises ``ValueError`` for a block that is not there.
        """
        return self.pool.block(index)

    def is_finite(self, index: int) -> bool:
        """Whether no number in a block is a NaN or an infinity; where codes are, no scale.

        Raises ``ValueError`` for a block that is not there.
        """
        sides = KV_SIDES[self.dtype]
        heads = self.block(index).reshape(-1, _BLOCK_TOKENS * sides.token_bytes(self.head_dim))
        start, scales = 0, 0  # of each layer and kv head: both planes, then the scales of codes
        for side in sides:
            stop = start + BITS[side] * _BLOCK_TOKENS * self.head_dim // 8
            if side in LARGEST_CODE:
                scales += SCALE_BYTES * _BLOCK_TOKENS
            elif not _all_finite("f16" if side == "fp16" else "f32", heads[:, start:stop]):
                return False
            start = stop
        return not scales or _all_finite("f32", heads[:, -scales:])


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
            self._native = emit(self._lowered, weights, max_rows, isa or machine.active_isa())
        wanted = [self._lowered.float_buffers[i] for i in self._lowered.outputs]
        self._output_rows = [buffer.rows.value for buffer in wanted]
        self._outputs = [np.empty((0, buffer.width), np.float32) for buffer in wanted]
        places = {str(buffer.output): i for i, buffer in enumerate(wanted)}
        self._logits, self._hidden = places.pop("logits"), places.pop("hidden", None)
        self._taps = {name.removeprefix("tap:"): i for name, i in places.items()}

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
        kept, found = len(batch.logit_rows), len(batch.argmax_rows)
        rows = {"T": len(batch.tokens), "R": kept + found, "K": kept, "H": len(batch.hidden_rows)}
        outputs = [self._output(i, rows[kind]) for i, kind in enumerate(self._output_rows)]
        argmax = np.empty(found, np.int32)
        self._native.run(
            self._threads,
            kv.pool,
            batch.tokens,
            batch.positions,
            batch.row_offsets,
            batch.block_tables,
            batch.logit_rows,
            batch.argmax_rows,
            batch.hidden_rows,
            outputs,
            argmax,
        )
        return StepOutput(
            outputs[self._logits],
            argmax,
            None if self._hidden is None else outputs[self._hidden],
            {name: outputs[i] for name, i in self._taps.items()},
        )

    def _output(self, index: int, rows: int) -> FloatArray:
        array = self._outputs[index]
        if array.shape[0] < rows:
            array = self._outputs[index] = np.empty((rows, array.shape[1]), np.float32)
        return array[:rows]


def _all_finite(scheme: str, numbers: NDArray[np.uint8]) -> bool:
    return _native.first_nonfinite(scheme, np.ascontiguousarray(numbers)) is None


def _activation_group(weight: NativeWeight) -> int:
    return weight.activation_group if isinstance(weight, _native.Matrix) else 0
