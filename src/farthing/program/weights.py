"""Weights in the kernels' layouts: packed from checkpoints, or used where packed files lie."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache, partial
from os import PathLike, fspath
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from farthing import _native
from farthing.errors import FarthingError
from farthing.program.ops import Program

FloatArray = NDArray[np.float32]
NativeMatrix = _native.Matrix
NativeWeight = NativeMatrix | FloatArray

WeightPlacement = Literal["mmap", "copy"]
"""Where matrices that are packed in a file are used: in the file, mapped, or in memory of our own,
on huge pages. Other weights are always packed into memory."""


class WeightSource(Protocol):
    """A tensor of a checkpoint, read on demand."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...
    def read_rows(self, start: int, stop: int) -> NDArray[np.uint8]: ...
    def dequantize(self, start: int = 0, stop: int | None = None) -> NDArray[np.float32]: ...
    def not_finite(self, row: int, column: int) -> FarthingError: ...


@runtime_checkable
class PackedSource(Protocol):
    """A matrix that lies packed in a file."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def codebook(self) -> tuple[int, ...] | None: ...
    def mapped(self) -> NDArray[np.uint8]: ...
    def read_into(self, start: int, out: NDArray[np.uint8]) -> None: ...
    def refused(self, problem: str) -> FarthingError: ...
    def not_finite(self, row: int, column: int) -> FarthingError: ...


class QuantizedMatrix(Protocol):
    """Codes and scales, as ``quantization.QuantizedTensor`` has and checks them."""

    @property
    def scheme(self) -> str: ...
    @property
    def codes(self) -> NDArray[np.uint8]: ...
    @property
    def scales(self) -> NDArray[np.float16]: ...
    @property
    def minimums(self) -> NDArray[np.float16] | None: ...
    @property
    def codebook(self) -> NDArray[np.int8] | None: ...


_GROUPS = {scheme["name"]: scheme["activation_group"] for scheme in _native.schemes()}
"""Columns of an int8 activation that share a scale, by scheme; 0 for float activations."""

_CHUNK_BYTES = 4 << 20
"""Bytes of a tensor read and packed at a time: what loading needs beside the packed weights."""

_ROW_BLOCK = 16
"""Rows that the packed layout interleaves."""

_BLOCKS: dict[str, tuple[int, int]] = {
    scheme["name"]: (scheme["block_cols"], scheme["block_bytes"]) for scheme in _native.schemes()
}
"""Columns and bytes of a block of each scheme."""


def load_weights(
    program: Program,
    sources: Mapping[str, WeightSource | PackedSource],
    *,
    num_threads: int,
    placement: WeightPlacement = "mmap",
    progress: Callable[[int], None] | None = None,
) -> dict[str, NativeWeight]:
    """Every weight of ``program`` in the kernels' layouts.

    Matrices keep their codes and scales; vectors become float32, and so do routers that are stored
    as integers: whom a row is sent to is decided in floats. Matrices that are packed already are
    used where they lie or copied, as ``placement`` says. ``progress`` is told the packed bytes of
    each finished tensor.

    Raises what a source's ``not_finite`` makes for the first weight or scale that is a NaN or an
    infinity, what its ``refused`` makes of packed bytes that do not fit its scheme and shape, and
    what its reading raises.
    """
    weights: dict[str, NativeWeight] = {}
    routers = program.routers

    def jobs() -> Iterator[tuple[int, Callable[[], None]]]:
        """Parts of the work, those of a tensor one after the other; the last with its bytes."""
        for slot in program.weights:
            source = sources[slot.name]
            if isinstance(source, PackedSource):
                matrix = _map(source) if placement == "mmap" else _like(source)
                weights[slot.name] = matrix
                yield matrix.nbytes, partial(_use, matrix, source, copy=placement == "copy")
                continue
            if len(slot.shape) == 1:
                with _native.FloatMode():
                    vector = np.ascontiguousarray(source.dequantize(), np.float32).reshape(-1)
                if not np.isfinite(vector).all():
                    raise source.not_finite(0, int(np.flatnonzero(~np.isfinite(vector))[0]))
                weights[slot.name] = vector
                yield vector.nbytes, lambda: None
                continue
            scheme = served_scheme(source.dtype, router=slot.name in routers)
            rows, cols = source.shape
            matrix = NativeMatrix(scheme, rows, cols)
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


def new_matrix(
    scheme: str, rows: int, cols: int, codebook: NDArray[np.int8] | None = None
) -> NativeMatrix:
    """A matrix of zeros, to be packed; ``codebook``: 16 levels that are not the scheme's."""
    return NativeMatrix(scheme, rows, cols, codebook)


def packed_shape(scheme: str, rows: int, cols: int) -> tuple[int, int]:
    """Bytes of a packed matrix as (blocks of 16 rows, bytes of one).

    Raises ``ValueError`` where the scheme has no such columns.
    """
    return -(-rows // _ROW_BLOCK), _row_block_bytes(scheme, cols)


_row_block_bytes = lru_cache(1024)(_native.row_block_bytes)  # experts are many and alike


def pack_rows(matrix: NativeMatrix, start: int, rows: QuantizedMatrix) -> None:
    """Packs ``rows`` into ``matrix`` from row ``start`` on, codes and scales as they are."""
    minimums = None if rows.minimums is None else _bits(rows.minimums)
    matrix.pack_codes(start, np.ascontiguousarray(rows.codes), _bits(rows.scales), minimums)


def pack_quantized(tensor: QuantizedMatrix) -> NativeMatrix:
    """The matrix of ``tensor`` in the kernels' layout, codes and scales as they are."""
    rows, cols = tensor.codes.shape
    codebook = None if tensor.codebook is None else np.ascontiguousarray(tensor.codebook)
    matrix = NativeMatrix(tensor.scheme, rows, cols, codebook)
    pack_rows(matrix, 0, tensor)
    return matrix


def pack_stored_rows(matrix: NativeMatrix, source: WeightSource, start: int, stop: int) -> None:
    """Packs rows start..stop of ``source`` into ``matrix``, which has its scheme or is float32.

    Raises what the source's ``not_finite`` makes and what its reading raises.
    """
    scheme = matrix.scheme
    with _native.FloatMode():  # reading may convert to fp16
        if scheme == source.dtype:
            data = source.read_rows(start, stop)
        else:
            values = source.dequantize(start, stop)
            data = np.ascontiguousarray(values, np.float32).view(np.uint8)
    _refuse_nonfinite(scheme, source, start, data)
    matrix.pack(start, data)


def decode_rows(source: WeightSource | PackedSource, start: int, stop: int) -> FloatArray:
    """Rows start..stop of ``source`` as float32 (stop - start, cols), the values kernels serve.

    Raises what the source's ``not_finite`` makes for a weight or scale that is no number, and what
    its ``refused`` makes of packed bytes that do not fit its scheme and shape.
    """
    if isinstance(source, PackedSource):
        values = _map(source).dequantize(start, stop - start)
    elif _GROUPS.get(source.dtype, 0):
        part = _scratch.matrix(source.dtype, stop - start, source.shape[-1])
        data = source.read_rows(start, stop)
        _refuse_nonfinite(source.dtype, source, start, data)
        part.pack(0, data)
        return part.dequantize(0, stop - start)
    else:
        with _native.FloatMode():
            values = np.ascontiguousarray(source.dequantize(start, stop), np.float32)
    values = values.reshape(stop - start, -1)
    finite = np.isfinite(values)
    if not finite.all():
        row, column = (int(i) for i in np.argwhere(~finite)[0])
        raise source.not_finite(start + row, column)
    return values


class _Scratch(threading.local):
    """Matrices of a thread that rows are decoded in, over and over.

    New ones would lie among the weights, whose memory comes back when all of a mapping is free.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[str, int], NativeMatrix] = {}

    def matrix(self, scheme: str, rows: int, cols: int) -> NativeMatrix:
        """One of ``rows`` at least, with whatever was in it before."""
        kept = self._kept.get((scheme, cols))
        if kept is None or kept.rows < rows:
            kept = NativeMatrix(scheme, rows, cols)
            if kept.nbytes <= _CHUNK_BYTES:
                self._kept[scheme, cols] = kept
        return kept


_scratch = _Scratch()


def _bits(halves: NDArray[np.float16]) -> NDArray[np.uint16]:
    return np.ascontiguousarray(halves).view(np.uint16)


def served_scheme(stored: str, *, router: bool) -> str:
    """The scheme a matrix stored as ``stored`` is packed in."""
    return "f32" if router and _GROUPS[stored] else stored


def _packing(
    matrix: NativeMatrix, source: WeightSource
) -> Iterator[tuple[int, Callable[[], None]]]:
    """Jobs that fill ``matrix``, a chunk of rows each."""
    rows = matrix.rows
    row_bytes = max(1, matrix.nbytes // rows)
    step = max(16, _CHUNK_BYTES // row_bytes // 16 * 16)  # whole row blocks
    for start in range(0, rows, step):
        stop = min(start + step, rows)
        yield (
            matrix.nbytes if stop == rows else 0,
            partial(pack_stored_rows, matrix, source, start, stop),
        )


def _refuse_nonfinite(
    scheme: str, source: WeightSource, start: int, data: NDArray[np.uint8]
) -> None:
    bad = _native.first_nonfinite(scheme, data)
    if bad is not None:
        block_cols, block_bytes = _BLOCKS[scheme]
        row, byte = divmod(bad, data.shape[1])
        raise source.not_finite(start + row, byte // block_bytes * block_cols)


def _map(source: PackedSource) -> NativeMatrix:
    """The matrix where it lies in its file; raises what ``refused`` makes of other sizes."""
    try:
        return NativeMatrix.from_packed(
            source.dtype, *_rows_and_cols(source), source.mapped(), _levels(source)
        )
    except ValueError as error:
        raise source.refused(str(error)) from None


def _like(source: PackedSource) -> NativeMatrix:
    """An empty matrix for a packed one to be copied to; raises as :func:`_map`."""
    try:
        matrix = NativeMatrix(source.dtype, *_rows_and_cols(source), _levels(source))
    except ValueError as error:
        raise source.refused(str(error)) from None
    if matrix.nbytes != source.nbytes:
        raise source.refused(
            f"a packed {source.dtype} matrix of shape {source.shape} has {matrix.nbytes} bytes, "
            f"got {source.nbytes}"
        )
    return matrix


def _use(matrix: NativeMatrix, source: PackedSource, *, copy: bool) -> None:
    """Fills ``matrix`` if it is to be, and refuses numbers that are none."""
    if copy:
        for start in range(0, source.nbytes, _CHUNK_BYTES):
            data = np.empty(min(_CHUNK_BYTES, source.nbytes - start), np.uint8)
            source.read_into(start, data)
            matrix.fill_packed(start, data)
    place = matrix.first_nonfinite()
    if place is not None:
        raise source.not_finite(*place)


def _rows_and_cols(source: PackedSource) -> tuple[int, int]:
    rows, cols = source.shape
    return rows, cols


def _levels(source: PackedSource) -> NDArray[np.int8] | None:
    return None if source.codebook is None else np.array(source.codebook, np.int8)


def explain_bus_errors(model: str | PathLike[str], *, may_copy: bool = True) -> None:
    """Has stderr told why, when a mapped file of ``model`` that was cut ends the process.

    For programs, not for libraries: it is the whole process that has a signal's handler. Does
    nothing where SIGBUS is handled already. ``may_copy`` is whether the program has --weights.
    """
    remedy = "make it anew"
    if may_copy:
        remedy += ", and use --weights copy where files may change"
    _native.explain_bus_errors(
        f"farthing: error: {fspath(model)}: a file of the model became shorter while it was in "
        f"use; {remedy}\n"
    )
