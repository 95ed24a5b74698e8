"""What rounding errs, for tables over many matrices and schemes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from farthing import _native
from farthing.errors import InvalidParameterError
from farthing.quantization.chunks import Chunks
from farthing.quantization.rounding import (
    FloatArray,
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


def matrix_error(
    matrix: Chunks, scheme: Scheme, method: RoundingMethod = "absmax"
) -> RoundingError:
    """What a matrix errs in ``scheme``, a chunk of rows in memory at a time.

    Scales are rounded to fp16, as they are counted in the bits of a weight and as they are served.
    NF4 is taken at its published levels (``NF4_LEVELS``), and scales that reach the largest weight;
    kernels serve it at ``NF4_CODEBOOK``. Other codebooks are of whole levels, as served.

    Raises :class:`InvalidParameterError` for a scheme without codes of one level of scales, and
    where a scale would be too large for fp16.
    """
    published = scheme.codebook == NF4_CODEBOOK
    if published and method == "absmax":
        return _published_error(matrix, scheme)
    wide = fit_matrix(matrix, scheme, method)
    total = RoundingError(0.0, 0.0)
    for chunk in matrix:
        values = np.ascontiguousarray(chunk, np.float32)
        tensor = round_rows(values, scheme, method, wide)
        if published:  # with the scales that a search found for the served levels
            coded = _at_published_levels(
                scheme, tensor.scales.astype(np.float32) * np.float32(CODEBOOK_REACH)
            )
            total += coded.error(values, coded.codes(values))
        else:
            total += _as_served(tensor).error(values, tensor.codes)
    return total


def _published_error(matrix: Chunks, scheme: Scheme) -> RoundingError:
    """What NF4 errs where the largest weight of a group, as fp16 holds it, is its scale."""
    of_matrix = _largest(matrix) if scheme.group == WHOLE_TENSOR else None
    total = RoundingError(0.0, 0.0)
    for chunk in matrix:
        values = np.ascontiguousarray(chunk, np.float32)
        largest = _largest_of_groups(values, scheme) if of_matrix is None else of_matrix
        coded = _at_published_levels(scheme, largest)
        total += coded.error(values, coded.codes(values))
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


def _at_published_levels(scheme: Scheme, scales: FloatArray) -> _Coded:
    with np.errstate(over="ignore"):
        halves = scales.astype(np.float16).astype(np.float32)
    if not np.isfinite(halves).all():
        raise InvalidParameterError("its weights need a scale that does not fit fp16")
    return _Coded(scheme, halves, None, np.array(NF4_LEVELS, np.float32))


def _largest_of_groups(values: FloatArray, scheme: Scheme) -> FloatArray:
    """The largest magnitude of each group, (rows, groups)."""
    starts = np.arange(0, values.shape[1], native_group(scheme, values.shape[1]))
    largest: FloatArray = np.maximum.reduceat(np.abs(values), starts, axis=1)
    return largest


def _largest(matrix: Chunks) -> FloatArray:
    """That of the whole matrix, (1, 1)."""
    ranges = (_native.value_range(np.ascontiguousarray(chunk, np.float32)) for chunk in matrix)
    return np.full((1, 1), max(max(-low, high) for low, high in ranges), np.float32)
