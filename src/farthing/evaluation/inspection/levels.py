"""How many of the 256 levels of INT8 a tensor uses when all of it shares one scale."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BITS = 8
LEVELS = 1 << BITS
_QMAX = LEVELS // 2 - 1  # 127


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


def int8_levels(values: NDArray[np.float32]) -> Levels:
    """Rounds ``values`` (n, d), finite, with one scale."""
    exact = values.astype(np.float64)
    maximum = float(np.abs(exact).max(initial=0.0))
    scale = maximum / _QMAX
    codes = np.zeros(values.shape, np.int64) if scale == 0 else np.rint(exact / scale)
    codes = np.clip(codes, -_QMAX - 1, _QMAX).astype(np.int64)
    ordered = np.sort(codes, axis=0)
    return Levels(
        maximum,
        scale,
        np.bincount(codes.reshape(-1) + LEVELS // 2, minlength=LEVELS),
        np.count_nonzero(np.diff(ordered, axis=0), axis=0) + 1,
        int(np.count_nonzero(~codes.any(axis=0))),
    )


def set_aside(values: NDArray[np.float32], dimensions: tuple[int, ...]) -> SetAside:
    """Levels of ``values`` (n, d), and of what is left without ``dimensions``, fewer than d."""
    rest = np.delete(values, dimensions, axis=1)
    return SetAside(int8_levels(values), dimensions, int8_levels(rest))
