"""How many of the 256 levels of INT8 a tensor uses when all of it shares one scale."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BITS = 8
LEVELS = 1 << BITS
_QMAX = LEVELS // 2 - 1  # 127
_ELEMENTS = 1 << 20  # that are worked on at a time


@dataclass(frozen=True, slots=True, eq=False)
class Levels:
    """A tensor of n rows and d dimensions, rounded with one scale.

    Symmetric absolute-maximum quantization: ``scale = maximum / 127`` in float64, a code is
    ``round(x / scale)``, halves to even.
    """

    maximum: float  # the largest magnitude
    scale: float
    counts: NDArray[np.int64]  # (256,) values on each level, from -128 to 127
    per_dimension: NDArray[np.int64]  # (d,) levels that a dimension uses over the rows
    all_zero: int  # dimensions of which every value became 0

    @property
    def used(self) -> int:
        """Levels on which there is a value."""
        return int(np.count_nonzero(self.counts))

    @property
    def on_one_level(self) -> int:
        """Dimensions whose values all became the same number."""
        return int(np.count_nonzero(self.per_dimension == 1))

    @property
    def zero_share(self) -> float:
        """Share of the values that became 0."""
        return float(self.counts[LEVELS // 2] / self.counts.sum())


@dataclass(frozen=True, slots=True, eq=False)
class SetAside:
    """A tensor as it is, and without the dimensions with its largest values."""

    whole: Levels
    dimensions: tuple[int, ...]  # set aside, the largest first
    rest: Levels

    @property
    def ratio(self) -> float | None:
        """How many times smaller the scale is without them; None where the rest is all zero."""
        return self.whole.scale / self.rest.scale if self.rest.scale else None


def int8_levels(values: NDArray[np.float32], dimensions: NDArray[np.intp] | None = None) -> Levels:
    """Rounds ``values`` (n, d), finite, with one scale; only ``dimensions`` of them if given.

    A few dimensions at a time, so that a long text takes little more memory than its values.
    """
    kept = np.arange(values.shape[1]) if dimensions is None else dimensions
    step = max(1, _ELEMENTS // len(values))
    blocks = [kept[start : start + step] for start in range(0, len(kept), step)]
    maximum = max((float(np.abs(values[:, block]).max()) for block in blocks), default=0.0)
    scale = maximum / _QMAX
    counts, per_dimension, all_zero = np.zeros(LEVELS, np.int64), np.ones(len(kept), np.int64), 0
    for i, block in enumerate(blocks):
        exact = values[:, block].astype(np.float64)
        codes = np.rint(exact / scale) if scale else np.zeros(exact.shape)
        codes = np.clip(codes, -_QMAX - 1, _QMAX).astype(np.int16)
        counts += np.bincount(codes.reshape(-1) + LEVELS // 2, minlength=LEVELS)
        changes = np.diff(np.sort(codes, axis=0), axis=0)
        per_dimension[i * step : i * step + len(block)] += np.count_nonzero(changes, axis=0)
        all_zero += int(np.count_nonzero(~codes.any(axis=0)))
    return Levels(maximum, scale, counts, per_dimension, all_zero)


def set_aside(values: NDArray[np.float32], dimensions: tuple[int, ...]) -> SetAside:
    """Levels of ``values`` (n, d), and of what is left without ``dimensions``, fewer than d."""
    kept = np.delete(np.arange(values.shape[1]), dimensions)
    return SetAside(int8_levels(values), dimensions, int8_levels(values, kept))
