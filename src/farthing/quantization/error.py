"""What rounding errs, for tables over many matrices and schemes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from farthing import _native
from farthing.errors import InvalidParameterError
from farthing.quantization.chunks import ArrayChunks, Chunks
from farthing.quantization.rounding import (
    FloatArray,
    MatrixWide,
    RoundingMethod,
    fit_matrix,
    native_group,
    round_rows,
)
from farthing.quantization.schemes import (
    CODEBOOK_REACH,
    NF4_CODEBOOK,
    NF4_LEVELS,
    WHOLE_TENSOR,
    Scheme,
)
from farthing.quantization.tensor import QuantizedTensor


@dataclass(frozen=True, slots=True)
class RoundingError:
    """Sums in double over some weights W and what W' they are rounded to; they add up."""

    squared: float  # of (W - W')^2
    squared_weights: float  # of W^2

    @property
    def relative(self) -> float:
        """The relative Frobenius error ||W - W'|| / ||W||; 0 where all weights are 0."""
        return math.sqrt(self.squared / self.squared_weights) if self.squared_weights else 0.0

    def __add__(self, other: RoundingError) -> RoundingError:
        return RoundingError(
            self.squared + other.squared, self.squared_weights + other.squared_weights
        )


def rounding_error(
    values: FloatArray,
    scheme: Scheme,
    method: RoundingMethod = "absmax",
    *,
    unrounded_scales: bool = False,
) -> RoundingError:
    """What finite ``values`` (rows, cols) err in ``scheme``: :func:`matrix_error` of an array."""
    chunks = ArrayChunks(np.ascontiguousarray(values, np.float32))
    return matrix_error(chunks, scheme, method, unrounded_scales=unrounded_scales)


def matrix_error(
    matrix: Chunks,
    scheme: Scheme,
    method: RoundingMethod = "absmax",
    *,
    unrounded_scales: bool = False,
) -> RoundingError:
    """What a matrix errs in ``scheme``, a chunk of rows in memory at a time.

    Scales are rounded to fp16, as they are counted in the bits of a weight and as they are served.
    ``unrounded_scales``: they stay float32, as in the textbook's formula; with ``absmax`` alone.
    NF4 is taken at its published levels (``NF4_LEVELS``), and scales that reach the largest weight;
    kernels serve it at ``NF4_CODEBOOK``. Other codebooks are of whole levels, as served.

    Raises :class:`InvalidParameterError` for a scheme without codes of one level of scales, for
    unrounded scales of a search, and where a scale would be too large for fp16.
    """
    if unrounded_scales and method != "absmax":
        raise InvalidParameterError(f"unrounded scales are those of absmax, not of {method}")
    published = scheme.codebook == NF4_CODEBOOK
    wide = fit_matrix(matrix, scheme, method)
    ranges = _matrix_range(matrix) if scheme.group == WHOLE_TENSOR else None
    total = RoundingError(0.0, 0.0)
    for chunk in matrix:
        values = np.ascontiguousarray(chunk, np.float32)
        if method == "absmax" and (published or unrounded_scales):
            low, high = ranges or _group_ranges(values, scheme)
            coded = _from_ranges(low, high, scheme, wide, rounded=not unrounded_scales)
            codes = coded.codes(values)
        else:
            tensor = round_rows(values, scheme, method, wide)
            coded = _published(tensor) if published else _as_served(tensor)
            codes = coded.codes(values) if published else tensor.codes
        total += coded.error(values, codes)
    return total


@dataclass(frozen=True, slots=True)
class _Coded:
    """How codes are read, as the native module takes it."""

    scheme: Scheme
    scales: FloatArray
    minimums: FloatArray | None
    levels: FloatArray | None

    def codes(self, values: FloatArray) -> npt.NDArray[np.uint8]:
        assert self.scheme.code_bits is not None
        return _native.nearest_codes(
            values,
            self.scales,
            native_group(self.scheme, values.shape[1]),
            bits=self.scheme.code_bits,
            minimums=self.minimums,
            levels=self.levels,
        )

    def error(self, values: FloatArray, codes: npt.NDArray[np.uint8]) -> RoundingError:
        assert self.scheme.code_bits is not None
        sums = _native.squared_error(
            values,
            codes,
            self.scales,
            native_group(self.scheme, values.shape[1]),
            bits=self.scheme.code_bits,
            minimums=self.minimums,
            levels=self.levels,
        )
        return RoundingError(*sums)


def _as_served(tensor: QuantizedTensor) -> _Coded:
    minimums = None if tensor.minimums is None else tensor.minimums.astype(np.float32)
    levels = tensor.levels if tensor.row.has_codebook else None
    return _Coded(tensor.row, tensor.scales.astype(np.float32), minimums, levels)


def _published(tensor: QuantizedTensor) -> _Coded:
    """The published levels with the scales that a search found for the served ones."""
    scales = tensor.scales.astype(np.float32) * np.float32(CODEBOOK_REACH)
    return _Coded(tensor.row, _in_halves(scales), None, np.array(NF4_LEVELS, np.float32))


def _from_ranges(
    low: FloatArray, high: FloatArray, scheme: Scheme, wide: MatrixWide, *, rounded: bool
) -> _Coded:
    """The scales of ``absmax`` for groups whose smallest and largest weights these are."""
    assert scheme.code_bits is not None
    if scheme.minimum:
        scales = (high - low) / np.float32((1 << scheme.code_bits) - 1)
        if rounded:
            scales, low = _in_halves(scales), _in_halves(low)
        return _Coded(scheme, scales, low, None)
    levels: FloatArray | None = None
    reach = np.float32((1 << scheme.code_bits - 1) - 1)
    if scheme.codebook_learnt:
        assert wide.codebook is not None
        levels, reach = wide.codebook.astype(np.float32), np.float32(CODEBOOK_REACH)
    elif scheme.codebook is not None:
        levels = np.array(
            NF4_LEVELS if scheme.codebook == NF4_CODEBOOK else scheme.codebook, np.float32
        )
        reach = np.float32(min(-levels[0], levels[-1]))
    scales = np.maximum(-low, high).astype(np.float32) / reach
    return _Coded(scheme, _in_halves(scales) if rounded else scales, None, levels)


def _in_halves(numbers: FloatArray) -> FloatArray:
    with np.errstate(over="ignore"):
        halves = numbers.astype(np.float16).astype(np.float32)
    if not np.isfinite(halves).all():
        raise InvalidParameterError("its weights need a scale that does not fit fp16")
    return halves


def _group_ranges(values: FloatArray, scheme: Scheme) -> tuple[FloatArray, FloatArray]:
    """The smallest and the largest weight of each group (rows, groups)."""
    starts = np.arange(0, values.shape[1], native_group(scheme, values.shape[1]))
    return np.minimum.reduceat(values, starts, axis=1), np.maximum.reduceat(values, starts, axis=1)


def _matrix_range(matrix: Chunks) -> tuple[FloatArray, FloatArray]:
    """Those of the whole matrix (1, 1)."""
    ranges = list(_ranges(matrix))
    low, high = min(r[0] for r in ranges), max(r[1] for r in ranges)
    return np.full((1, 1), low, np.float32), np.full((1, 1), high, np.float32)


def _ranges(matrix: Chunks) -> Iterator[tuple[float, float]]:
    for chunk in matrix:
        yield _native.value_range(np.ascontiguousarray(chunk, np.float32))
