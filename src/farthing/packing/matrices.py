"""One matrix after another from checkpoint to packed layout, on several threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from farthing.errors import InvalidParameterError, ModelFormatError
from farthing.models.checkpoint import TensorSource
from farthing.packing.memory_budget import MemoryBudget
from farthing.packing.plan import Placement
from farthing.program.native import FloatMode
from farthing.program.weights import (
    NativeMatrix,
    decode_rows,
    new_matrix,
    pack_rows,
    pack_stored_rows,
)
from farthing.quantization.carrier import carry
from farthing.quantization.chunks import row_chunks
from farthing.quantization.rounding import (
    MatrixWide,
    RoundingMethod,
    fit_matrix,
    has_matrix_wide,
    round_rows,
)
from farthing.quantization.schemes import WHOLE_TENSOR

SEARCHED_BYTES = 2 << 30
"""Floats of the matrices whose one scale is searched at a time."""


@dataclass(frozen=True, slots=True)
class SourceChunks:
    """A matrix of a checkpoint, decoded some rows at a time: ``quantization.chunks.Chunks``."""

    source: TensorSource

    def __iter__(self) -> Iterator[npt.NDArray[np.float32]]:
        chunks = row_chunks(self.source.rows, self.source.cols)
        return (decode_rows(self.source, start, stop) for start, stop in chunks)

    def whole(self) -> npt.NDArray[np.float32]:
        """All of it."""
        values = np.empty((self.source.rows, self.source.cols), np.float32)
        chunks = row_chunks(*values.shape)
        for (start, stop), chunk in zip(chunks, self, strict=True):
            values[start:stop] = chunk
        return values


@dataclass(frozen=True, slots=True)
class _Target:
    """What rows are packed into, and what they share."""

    matrix: NativeMatrix
    wide: MatrixWide
    codebook: tuple[int, ...] | None  # of the matrix, not of its scheme


@dataclass(frozen=True, slots=True)
class PackedMatrix:
    """A matrix as it is written and served."""

    matrix: NativeMatrix
    codebook: tuple[int, ...] | None  # 16 levels that are its own


@dataclass(slots=True)
class _Started:
    target: Future[_Target]
    parts: list[Future[None]]


def packed_matrices(
    placements: Iterable[Placement], method: RoundingMethod, threads: Executor, ahead: int
) -> Iterator[PackedMatrix]:
    """The matrices in their order, each complete.

    While one is waited for and used, ``ahead`` parts of those after it are in work, so that two
    matrices of any size may be in memory, and beside them ``SEARCHED_BYTES`` where a scale is
    searched over all weights of a matrix.

    Raises :class:`ModelFormatError` for a weight that is not finite or too large for the scheme.
    """
    started: deque[_Started] = deque()
    waiting = 0
    for placement, target in _begun(placements, method, threads):
        parts = [
            threads.submit(_pack, placement, target, start, stop, method)
            for start, stop in row_chunks(*placement.shape)
        ]
        started.append(_Started(target, parts))
        waiting += len(parts)
        while waiting - len(started[0].parts) >= ahead:
            waiting -= len(started[0].parts)
            yield _finish(started.popleft())
    while started:
        yield _finish(started.popleft())


def _begun(
    placements: Iterable[Placement], method: RoundingMethod, threads: Executor
) -> Iterator[tuple[Placement, Future[_Target]]]:
    """Each with its target, for which threads have been asked before the rows of the one before.

    What waits for a target is thus never the only work there is.
    """
    before: tuple[Placement, Future[_Target]] | None = None
    searches = MemoryBudget(SEARCHED_BYTES)
    for placement in placements:
        begun = placement, threads.submit(_begin, placement, method, searches)
        if before is not None:
            yield before
        before = begun
    if before is not None:
        yield before


def searched_bytes(placement: Placement, method: RoundingMethod) -> int:
    """Bytes of the floats that are in memory together while a matrix's one scale is searched."""
    searched = placement.scheme.group == WHOLE_TENSOR and method != "absmax"
    return 4 * placement.source.rows * placement.source.cols if searched else 0


def _begin(placement: Placement, method: RoundingMethod, searches: MemoryBudget) -> _Target:
    scheme, wide = placement.scheme, MatrixWide()
    if not placement.kept and has_matrix_wide(scheme):
        room = searches.take(searched_bytes(placement, method))
        with room, FloatMode(), _named(placement):
            wide = fit_matrix(SourceChunks(placement.source), scheme, method)
    levels = wide.codebook if placement.carrier.has_codebook else None
    matrix = new_matrix(placement.carrier.name, *placement.shape, levels)
    codebook = None if levels is None else tuple(int(level) for level in levels)
    return _Target(matrix, wide, codebook)


def _finish(started: _Started) -> PackedMatrix:
    for part in started.parts:
        part.result()
    target = started.target.result()
    return PackedMatrix(target.matrix, target.codebook)


def _pack(
    placement: Placement, begun: Future[_Target], start: int, stop: int, method: RoundingMethod
) -> None:
    source, scheme = placement.source, placement.scheme
    target = begun.result()
    matrix = target.matrix
    with FloatMode():
        if placement.kept:
            pack_stored_rows(matrix, source, start, stop)
            return
        values = decode_rows(source, start, stop)
        if scheme.scale_levels == 0:
            dense = _dense(values, scheme.name)
            _refuse_overflow(placement, start, values, dense)
            matrix.pack(start, dense)
            return
        with _named(placement, start):
            pack_rows(matrix, start, carry(round_rows(values, scheme, method, target.wide)))


@contextmanager
def _named(placement: Placement, row: int = 0) -> Iterator[None]:
    """Says of which tensor the weights cannot be rounded."""
    try:
        yield
    except InvalidParameterError as error:
        source = placement.source
        raise ModelFormatError(
            source.file, f"from row {row}: {error}", field=f"tensor {source.name}"
        ) from None


def _dense(values: npt.NDArray[np.float32], name: str) -> npt.NDArray[np.uint8]:
    """(rows, cols) in a float scheme, rounded to nearest even, as bytes (rows, row bytes)."""
    if name == "f32":
        return np.ascontiguousarray(values).view(np.uint8)
    if name == "f16":
        with np.errstate(over="ignore"):
            return values.astype(np.float16).view(np.uint8)
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded = (bits + (np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1)))) >> np.uint32(16)
    return rounded.astype(np.uint16).view(np.uint8)


def _refuse_overflow(
    placement: Placement,
    start: int,
    values: npt.NDArray[np.float32],
    dense: npt.NDArray[np.uint8],
) -> None:
    if placement.scheme.name == "f32":
        return
    exponent = np.uint16(0x7C00 if placement.scheme.name == "f16" else 0x7F80)
    halves = dense.view(np.uint16).reshape(values.shape)
    bad = np.argwhere((halves & exponent) == exponent)
    if len(bad):
        row, column = (int(i) for i in bad[0])
        source = placement.source
        raise ModelFormatError(
            source.file,
            f"value {values[row, column]:g} at row {start + row}, column {column} does not fit "
            f"{placement.scheme.name}",
            field=f"tensor {source.name}",
        )
