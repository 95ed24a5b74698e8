"""One matrix after another from checkpoint to packed layout, on several threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from farthing.errors import InvalidParameterError, ModelFormatError
from farthing.packing.plan import Placement
from farthing.program.native import FloatMode
from farthing.program.weights import (
    NativeMatrix,
    decode_rows,
    new_matrix,
    pack_rows,
    pack_stored_rows,
)
from farthing.quantization.rounding import RoundingMethod, round_weights

_CHUNK_ELEMENTS = 1 << 20  # rounded at a time: a few MB of floats and codes
_ROW_BLOCK = 16  # rows that the layout interleaves


@dataclass(slots=True)
class _Started:
    matrix: NativeMatrix
    parts: list[Future[None]]


def packed_matrices(
    placements: Iterable[Placement], method: RoundingMethod, threads: Executor, ahead: int
) -> Iterator[NativeMatrix]:
    """The matrices in their order, each complete; parts of at most ``ahead`` more are in work.

    Raises :class:`ModelFormatError` for a weight that is not finite or too large for the scheme.
    """
    started: deque[_Started] = deque()
    waiting = 0
    for placement in placements:
        matrix = new_matrix(placement.scheme.name, *placement.shape)
        step = max(1, _CHUNK_ELEMENTS // matrix.cols // _ROW_BLOCK) * _ROW_BLOCK
        parts = [
            threads.submit(_pack, placement, matrix, start, min(start + step, matrix.rows), method)
            for start in range(0, matrix.rows, step)
        ]
        started.append(_Started(matrix, parts))
        waiting += len(parts)
        while waiting > ahead:
            waiting -= len(started[0].parts)
            yield _finish(started.popleft())
    while started:
        yield _finish(started.popleft())


def _finish(started: _Started) -> NativeMatrix:
    for part in started.parts:
        part.result()
    return started.matrix


def _pack(
    placement: Placement, matrix: NativeMatrix, start: int, stop: int, method: RoundingMethod
) -> None:
    source, scheme = placement.source, placement.scheme
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
        try:
            pack_rows(matrix, start, round_weights(values, scheme, method))
        except InvalidParameterError as error:
            raise ModelFormatError(
                source.file, f"from row {start}: {error}", field=f"tensor {source.name}"
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
