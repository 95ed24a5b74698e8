"""The native executor: plays a lowered program in one call, without the GIL, on its own threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from farthing import _native, machine
from farthing.errors import FarthingError
from farthing.program.emission import FloatArray, NativeWeight, emit
from farthing.program.lowering import lower
from farthing.program.ops import Program
from farthing.program.step import StepBatch, StepOutput

KvDtype = Literal["fp16", "fp32"]
FloatMode = _native.FloatMode
"""Context manager: rounding and denormal mode of the numerics, the caller's restored after it."""


class WeightSource(Protocol):
    """A tensor of a checkpoint, read on demand."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...
    def read_rows(self, start: int, stop: int) -> NDArray[np.uint8]: ...
    def dequantize(self, start: int = 0, stop: int | None = None) -> NDArray[np.float32]: ...
    def not_finite(self, row: int, column: int) -> FarthingError: ...


_GROUPS = {scheme["name"]: scheme["activation_group"] for scheme in _native.schemes()}
"""Columns of an int8 activation that share a scale, by scheme; 0 for float activations."""

_CHUNK_BYTES = 4 << 20
"""Bytes of a tensor read and packed at a time: what loading needs beside the packed weights."""

_BLOCKS: dict[str, tuple[int, int]] = {
    scheme["name"]: (scheme["block_cols"], scheme["block_bytes"]) for scheme in _native.schemes()
}
"""Columns and bytes of a block of each scheme."""


def load_weights(
    program: Program,
    sources: Mapping[str, WeightSource],
    *,
    num_threads: int,
    progress: Callable[[int], None] | None = None,
) -> dict[str, NativeWeight]:
    """Packs every weight of ``program`` into the kernels' layouts.

    Matrices keep their codes and scales; vectors become float32, and so do routers that are stored
    as integers: whom a row is sent to is decided in floats. ``progress`` is told the packed bytes
    of each finished tensor.

    Raises what a source's ``not_finite`` makes for the first weight or scale that is a NaN or an
    infinity, and what its reading raises.
    """
    weights: dict[str, NativeWeight] = {}
    routers = program.routers

    def jobs() -> Iterator[tuple[int, Callable[[], None]]]:
        """Parts of the work, those of a tensor one after the other; the last with its bytes."""
        for slot in program.weights:
            source = sources[slot.name]
            if len(slot.shape) == 1:
                with FloatMode():
                    vector = np.ascontiguousarray(source.dequantize(), np.float32).reshape(-1)
                if not np.isfinite(vector).all():
                    raise source.not_finite(0, int(np.flatnonzero(~np.isfinite(vector))[0]))
                weights[slot.name] = vector
                yield vector.nbytes, lambda: None
                continue
            scheme = served_scheme(source.dtype, router=slot.name in routers)
            rows, cols = source.shape
            matrix = _native.Matrix(scheme, rows, cols)
            weights[slot.name] = matrix
            yield from _packing(matrix, source)

    with ThreadPoolExecutor(num_threads) as threads:
        # A mixture of experts has many small matrices: threads work on several at once.
        waiting: deque[tuple[int, Future[None]]] = deque()

        def finish_one() -> None:
            size, done = waiting.popleft()
            done.result()
            if size and progress is not None:
                progress(size)

        for size, job in jobs():
            waiting.append((size, threads.submit(job)))
            if len(waiting) > 2 * num_threads:
                finish_one()
        while waiting:
            finish_one()
    return weights


def served_scheme(stored: str, *, router: bool) -> str:
    """The scheme a matrix stored as ``stored`` is packed in."""
    return "f32" if router and _GROUPS[stored] else stored


def _packing(
    matrix: _native.Matrix, source: WeightSource
) -> Iterator[tuple[int, Callable[[], None]]]:
    """Jobs that fill ``matrix``, a chunk of rows each."""
    rows = matrix.rows
    row_bytes = max(1, matrix.nbytes // rows)
    step = max(16, _CHUNK_BYTES // row_bytes // 16 * 16)  # whole row blocks
    as_stored = matrix.scheme == source.dtype

    def pack(start: int) -> None:
        stop = min(start + step, rows)
        with FloatMode():  # reading may convert to fp16
            if as_stored:
                data = source.read_rows(start, stop)
            else:
                values = source.dequantize(start, stop)
                data = np.ascontiguousarray(values, np.float32).view(np.uint8)
        scheme = matrix.scheme
        bad = _native.first_nonfinite(scheme, data)
        if bad is not None:
            block_cols, block_bytes = _BLOCKS[scheme]
            row, byte = divmod(bad, data.shape[1])
            raise source.not_finite(start + row, byte // block_bytes * block_cols)
        matrix.pack(start, data)

    for start in range(0, rows, step):
        last = start + step >= rows
        yield matrix.nbytes if last else 0, partial(pack, start)


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


def thread_team(num_threads: int) -> _native.ThreadPool:
    """Threads to play passes on, the caller's included.

    They wait in a spin where each has a core within the process's quota; more would spend the
    time of those that work.

    Raises :class:`FarthingError` when the system refuses a thread.
    """
    try:
        return _native.ThreadPool(num_threads, spin=num_threads <= machine.default_threads())
    except RuntimeError as error:
        raise FarthingError(f"num_threads={num_threads}: {error}") from None


@dataclass(frozen=True, slots=True)
class InstructionTiming:
    """One instruction of a pass, from the barrier before it to the one after."""

    name: str  # its kind
    weight_bytes: int  # packed weights it read; 0 where the pass chose which
    seconds: float


class NativeExecutor:
    """Plays one program over one set of weights.

    ``max_rows`` bounds the rows of a pass and so the workspace, which does not depend on the
    length of any context. One caller at a time: a pass overwrites the last one's results.
    """

    def __init__(
        self,
        program: Program,
        weights: Mapping[str, NativeWeight],
        *,
        num_threads: int,
        max_rows: int = 512,
        isa: str | None = None,
    ) -> None:
        self.program = program
        self.weights = weights
        self.max_rows = max_rows
        self._threads = thread_team(num_threads)
        self._lowered = lower(program, lambda name: _activation_group(weights[name]))
        with FloatMode():  # constants round on their way, and rope frequencies are made
            self._native = emit(self._lowered, weights, max_rows, isa or machine.active_isa())
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
        kept, found = len(batch.logit_rows), len(batch.argmax_rows)
        rows = {"T": len(batch.tokens), "R": kept + found, "K": kept, "H": len(batch.hidden_rows)}
        buffers = [self._lowered.float_buffers[i] for i in self._lowered.outputs]
        arrays = [self._output(str(b.output), rows[b.rows.value], b.width) for b in buffers]
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
            arrays,
            argmax,
        )
        named = {str(b.output): a for b, a in zip(buffers, arrays, strict=True)}
        logits = named.pop("logits")
        hidden = named.pop("hidden", None)
        return StepOutput(
            logits, argmax, hidden, {k.removeprefix("tap:"): v for k, v in named.items()}
        )

    def _output(self, name: str, rows: int, width: int) -> FloatArray:
        array = self._outputs.get(name)
        if array is None or array.shape[0] < rows:
            array = self._outputs[name] = np.empty((rows, width), np.float32)
        return array[:rows]


def _activation_group(weight: NativeWeight) -> int:
    return weight.activation_group if isinstance(weight, _native.Matrix) else 0
