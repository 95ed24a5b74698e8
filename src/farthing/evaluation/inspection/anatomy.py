"""One matrix looked at closely: what a few of its weights do to the step of all the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from farthing.quantization import Scheme
from farthing.quantization.chunks import ArrayChunks
from farthing.quantization.error import matrix_error
from farthing.quantization.rounding import RoundingMethod, fit_matrix, native_group, round_rows

SIGMAS = 6
BINS = 241
"""Of the histogram: an odd number, so that one lies around zero."""


@dataclass(frozen=True, slots=True)
class Steps:
    """What one scheme makes of the matrix.

    A step is the mean distance between neighbouring levels, which is the scale where levels are
    even.
    """

    scheme: str
    even: bool  # whether levels are multiples of the step, zero among them
    scales: int  # how many there are
    least_step: float
    median_step: float
    largest_step: float
    levels: int  # that the codes have: 2^bits
    used: int  # of them, in the whole matrix
    used_by_scale: float  # the median over the weights that share a scale
    zeros: int  # weights that became 0
    error: float  # relative, Frobenius


@dataclass(frozen=True, slots=True, eq=False)
class Anatomy:
    """The weights of one matrix."""

    matrix: str
    shape: tuple[int, int]
    mean_abs: float
    std: float  # of the whole matrix, around its mean
    max_abs: float
    max_at: tuple[int, int]  # row and column; the first of equal ones
    beyond: int  # weights with a magnitude above SIGMAS standard deviations
    counts: NDArray[np.int64]  # (BINS,) weights in equal bins from -max_abs to max_abs
    steps: tuple[Steps, ...]

    @property
    def weights(self) -> int:
        """How many."""
        return self.shape[0] * self.shape[1]

    @property
    def max_to_std(self) -> float:
        """The largest magnitude in standard deviations; 0 where all weights are equal."""
        return self.max_abs / self.std if self.std else 0.0


def dissect(
    name: str, values: NDArray[np.float32], schemes: Sequence[Scheme], method: RoundingMethod
) -> Anatomy:
    """Looks at ``values`` (rows, cols), finite, and at what each of ``schemes`` makes of them."""
    count = values.size
    chunks = ArrayChunks(values)
    mean = sum(float(chunk.sum(dtype=np.float64)) for chunk in chunks) / count
    mean_abs = sum(float(np.abs(chunk).sum(dtype=np.float64)) for chunk in chunks) / count
    variance = sum(float(np.square(chunk - np.float64(mean)).sum()) for chunk in chunks) / count
    std = float(np.sqrt(variance))
    row, column = _largest(chunks)
    maximum = abs(float(values[row, column]))
    edges = np.linspace(-maximum, maximum, BINS + 1)
    beyond, histogram = 0, np.zeros(BINS, np.int64)
    for chunk in chunks:
        beyond += int(np.count_nonzero(np.abs(chunk) > SIGMAS * std))
        histogram += np.histogram(chunk, edges)[0] if maximum else 0
    return Anatomy(
        name,
        (values.shape[0], values.shape[1]),
        mean_abs,
        std,
        maximum,
        (row, column),
        beyond,
        histogram,
        tuple(_steps(values, scheme, method) for scheme in schemes),
    )


def _largest(chunks: ArrayChunks) -> tuple[int, int]:
    """Row and column of the largest magnitude, the first of equal ones."""
    largest, place, start = np.float32(-1), (0, 0), 0
    for chunk in chunks:
        magnitudes = np.abs(chunk)
        row, column = divmod(int(np.argmax(magnitudes)), chunk.shape[1])
        if magnitudes[row, column] > largest:
            largest, place = magnitudes[row, column], (start + row, column)
        start += len(chunk)
    return place


def _steps(values: NDArray[np.float32], scheme: Scheme, method: RoundingMethod) -> Steps:
    chunks = ArrayChunks(values)
    wide = fit_matrix(chunks, scheme, method)
    group = native_group(scheme, values.shape[1])
    assert scheme.code_bits is not None
    levels = 1 << scheme.code_bits
    used, by_scale = np.zeros(levels, np.int64), np.zeros(levels + 1, np.int64)
    steps: list[NDArray[np.float32]] = []
    zeros = 0
    for chunk in chunks:
        rounded = round_rows(chunk, scheme, method, wide)
        used += np.bincount(rounded.codes.reshape(-1), minlength=levels)
        zeros += rounded.codes.size - int(np.count_nonzero(rounded.dequantize()))
        gap = (rounded.levels[-1] - rounded.levels[0]) / np.float32(levels - 1)
        steps.append(rounded.scales.astype(np.float32).reshape(-1) * gap)
        if group:
            by_scale += np.bincount(_distinct(rounded.codes, group), minlength=levels + 1)
    every = np.concatenate(steps)
    total = int(np.count_nonzero(used))
    return Steps(
        scheme.name,
        not (scheme.has_codebook or scheme.minimum),
        len(every) if group else 1,
        float(every.min()),
        float(np.median(every)),
        float(every.max()),
        levels,
        total,
        _median(by_scale) if group else float(total),
        zeros,
        matrix_error(chunks, scheme, method).relative,
    )


def _distinct(codes: NDArray[np.uint8], group: int) -> NDArray[np.int64]:
    """How many codes differ in each group of columns of each row, (rows * groups,)."""
    filled = np.pad(codes, ((0, 0), (0, -codes.shape[1] % group)), "edge")  # adds no new code
    ordered = np.sort(filled.reshape(-1, group), axis=1)
    distinct: NDArray[np.int64] = np.count_nonzero(np.diff(ordered, axis=1), axis=1) + 1
    return distinct


def _median(counts: NDArray[np.int64]) -> float:
    """Of numbers of which there are ``counts[n]`` times n."""
    below = np.cumsum(counts)
    middle = [int(np.searchsorted(below, place, "right")) for place in _middles(int(below[-1]))]
    return sum(middle) / len(middle)


def _middles(count: int) -> tuple[int, int]:
    """The places of the two numbers in the middle, which may be one."""
    return (count - 1) // 2, count // 2
