"""Weights to codes and scales, without a look at what the model is used for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from farthing import _native
from farthing.errors import InvalidParameterError
from farthing.quantization.chunks import ArrayChunks, Chunks
from farthing.quantization.kmeans import best_codebook
from farthing.quantization.schemes import (
    CODEBOOK_REACH,
    WHOLE_ROW,
    WHOLE_TENSOR,
    Scheme,
)
from farthing.quantization.tensor import QuantizedTensor

FloatArray = npt.NDArray[np.float32]

RoundingMethod = Literal["absmax", "mse", "weighted"]
"""How a scale is chosen. ``absmax``: so that nothing is clipped (with a minimum: from the smallest
value to the largest). ``mse``: so that the squared error is the least that a search finds.
``weighted``: the same where an error counts by the magnitude of the weight it is made on, as large
weights carry most of what a matrix does. Neither search is ever worse than ``absmax`` by its own
measure."""

ROUNDING_METHODS: tuple[RoundingMethod, ...] = get_args(RoundingMethod)


@dataclass(frozen=True, slots=True)
class MatrixWide:
    """What all rows of a matrix share, where its scheme has such."""

    scale: np.float16 | None = None
    minimum: np.float16 | None = None
    codebook: npt.NDArray[np.int8] | None = None  # 16 levels


def has_matrix_wide(scheme: Scheme) -> bool:
    """Whether rows cannot be rounded to the scheme before the whole matrix was looked at."""
    return scheme.group == WHOLE_TENSOR or scheme.codebook_learnt


def round_weights(values: FloatArray, scheme: Scheme, method: RoundingMethod) -> QuantizedTensor:
    """Rounds a matrix ``values`` (rows, cols), finite, to ``scheme``.

    Codes are made with the scale as fp16 holds it. Raises :class:`InvalidParameterError` for a
    scheme without codes of one level of scales, and where a scale would be too large for fp16.
    """
    values = np.ascontiguousarray(values, np.float32)
    return round_rows(values, scheme, method, fit_matrix(ArrayChunks(values), scheme, method))


def fit_matrix(matrix: Chunks, scheme: Scheme, method: RoundingMethod) -> MatrixWide:
    """What the rows of ``matrix`` will share.

    Goes through the chunks as often as needed; a search for the one scale of a matrix asks for the
    whole. Raises as :func:`round_weights`.
    """
    _check(scheme)
    wide = MatrixWide()
    if scheme.group == WHOLE_TENSOR:
        wide = _range(matrix, scheme)
    if scheme.codebook_learnt:
        codebook = best_codebook(_level_sums(matrix, scheme, wide, method))
        wide = MatrixWide(wide.scale, wide.minimum, codebook)
    if scheme.group == WHOLE_TENSOR and method != "absmax":
        _, scales, minimums = _round(matrix.whole(), scheme, method, wide.codebook)
        minimum = None if minimums is None else minimums[0, 0]
        wide = MatrixWide(scales[0, 0], minimum, wide.codebook)
    return wide


def round_rows(
    values: FloatArray, scheme: Scheme, method: RoundingMethod, wide: MatrixWide
) -> QuantizedTensor:
    """Rounds some rows of a matrix, given what :func:`fit_matrix` found in all of them.

    Otherwise rows do not depend on each other. Raises as :func:`round_weights`.
    """
    _check(scheme)
    codes, scales, minimums = _round(values, scheme, method, wide.codebook, wide)
    return QuantizedTensor(scheme.name, codes, scales, minimums, wide.codebook)


def native_group(scheme: Scheme, cols: int) -> int:
    """Columns that share a scale, 0 for the whole matrix, as the native module takes it."""
    if scheme.group == WHOLE_TENSOR:
        return 0
    return cols if scheme.group == WHOLE_ROW else scheme.group


def _check(scheme: Scheme) -> None:
    if not scheme.coded:
        raise InvalidParameterError(f"weights cannot be rounded to scheme {scheme.name!r}")


_Numbers = npt.NDArray[np.float16]
_Rounded = tuple[npt.NDArray[np.uint8], _Numbers, _Numbers | None]


def _round(
    values: FloatArray,
    scheme: Scheme,
    method: RoundingMethod,
    codebook: npt.NDArray[np.int8] | None,
    wide: MatrixWide | None = None,
) -> _Rounded:
    """Codes, scales and minimums; those of ``wide`` where it has them."""
    assert scheme.code_bits is not None
    values = np.ascontiguousarray(values, np.float32)
    if codebook is None and scheme.codebook is not None:
        codebook = np.array(scheme.codebook, np.int8)
    if wide is not None and wide.scale is not None:
        scales = np.full((1, 1), wide.scale)
        lows = None if wide.minimum is None else np.full((1, 1), wide.minimum)
        codes = _native.nearest_codes(
            values,
            scales.astype(np.float32),
            0,
            bits=scheme.code_bits,
            minimums=None if lows is None else lows.astype(np.float32),
            levels=None if codebook is None else codebook.astype(np.float32),
        )
        return codes, scales, lows
    return _searched(
        values,
        native_group(scheme, values.shape[1]),
        method,
        bits=scheme.code_bits,
        minimum=scheme.minimum,
        codebook=codebook,
        reach=CODEBOOK_REACH if scheme.codebook_learnt else None,
    )


def _searched(
    values: FloatArray,
    group: int,
    method: RoundingMethod,
    *,
    bits: int,
    minimum: bool = False,
    codebook: npt.NDArray[np.int8] | None = None,
    reach: float | None = None,
) -> _Rounded:
    try:
        codes, scales, lows = _native.round_weights(
            values, group, method, bits=bits, minimum=minimum, codebook=codebook, reach=reach
        )
    except ValueError as error:
        raise InvalidParameterError(str(error)) from None
    return codes, scales.view(np.float16), None if lows is None else lows.view(np.float16)


def _range(matrix: Chunks, scheme: Scheme) -> MatrixWide:
    """The scale that clips nothing, and the minimum."""
    assert scheme.code_bits is not None
    ranges = [_native.value_range(np.ascontiguousarray(chunk)) for chunk in matrix]
    low, high = np.float32(min(r[0] for r in ranges)), np.float32(max(r[1] for r in ranges))
    with np.errstate(over="ignore"):
        if scheme.minimum:
            top = np.float32((1 << scheme.code_bits) - 1)
            wide = MatrixWide(np.float16((high - low) / top), np.float16(low))
        else:
            reach = CODEBOOK_REACH if scheme.has_codebook else (1 << scheme.code_bits - 1) - 1
            wide = MatrixWide(np.float16(max(-low, high) / np.float32(reach)))
    assert wide.scale is not None
    if not np.isfinite(wide.scale) or not np.isfinite(wide.minimum or 0):
        raise InvalidParameterError("its weights need a scale that does not fit fp16")
    return wide


def _level_sums(
    matrix: Chunks, scheme: Scheme, wide: MatrixWide, method: RoundingMethod
) -> npt.NDArray[np.float64]:
    """What a codebook is chosen by, for the scales that clip nothing."""
    total: npt.NDArray[np.float64] | None = None
    for chunk in matrix:
        values = np.ascontiguousarray(chunk, np.float32)
        group = native_group(scheme, values.shape[1])
        if wide.scale is None:
            _, scales, _ = _searched(values, group, "absmax", bits=8)  # which reach 127 too
        else:
            scales = np.full((1, 1), wide.scale)
        sums = _native.level_sums(values, scales.astype(np.float32), group, method == "weighted")
        total = sums if total is None else total + sums
    assert total is not None
    return total
