"""Outlier features: dimensions of the residual stream that are far larger than the others.

Dettmers et al., "LLM.int8()" (2022), section 4; Sun et al., "Massive Activations in Large Language
Models" (2024), for those that a first token brings about.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

TOP = 4
"""Dimensions that are named of each layer."""


@dataclass(frozen=True, slots=True)
class Outlier:
    """A dimension and its value of the largest magnitude."""

    dimension: int
    value: float
    position: int  # of the token that has it


@dataclass(frozen=True, slots=True, eq=False)
class DimensionMaxima:
    """The value of the largest magnitude of each of d dimensions, over some tokens."""

    values: NDArray[np.float32]  # (d,) with their signs
    positions: NDArray[np.int64]  # (d,) of the first token that has it

    @property
    def magnitudes(self) -> NDArray[np.float32]:
        """(d,)."""
        return np.abs(self.values)

    @property
    def maximum(self) -> float:
        """The largest magnitude of all."""
        return float(self.magnitudes.max())

    @property
    def median(self) -> float:
        """The magnitude that half of the dimensions do not pass."""
        return float(np.median(self.magnitudes.astype(np.float64)))

    def top(self, count: int = TOP) -> tuple[Outlier, ...]:
        """The dimensions with the largest magnitudes, the largest first, equal ones ascending."""
        order = np.argsort(-self.magnitudes, kind="stable")[:count]
        return tuple(Outlier(int(i), float(self.values[i]), int(self.positions[i])) for i in order)

    def octaves(self) -> dict[int, int]:
        """How many dimensions have their magnitude in [2^k, 2^(k + 1)), by k, gaps included.

        Dimensions that are zero throughout are in none.
        """
        magnitudes = self.magnitudes
        _, exponents = np.frexp(magnitudes[magnitudes > 0])
        octaves = exponents.astype(int) - 1  # frexp's fractions are from a half to one
        if not octaves.size:
            return {}
        counts = np.bincount(octaves - octaves.min())
        return {int(octaves.min()) + i: int(count) for i, count in enumerate(counts)}


class RunningMaxima:
    """Collects :class:`DimensionMaxima` of rows that come in pieces."""

    def __init__(self, width: int) -> None:
        self._values = np.zeros(width, np.float32)
        self._positions = np.zeros(width, np.int64)
        self._seen = False

    def add(self, start: int, rows: NDArray[np.floating]) -> None:
        """Takes the rows (n, width) of the tokens from position ``start`` on; n may be 0."""
        if not len(rows):
            return
        best = np.argmax(np.abs(rows), axis=0)
        values = np.take_along_axis(rows, best[None], axis=0)[0].astype(np.float32)
        larger = np.abs(values) > np.abs(self._values) if self._seen else np.ones(len(values), bool)
        self._values[larger] = values[larger]
        self._positions[larger] = start + best[larger]
        self._seen = True

    def result(self) -> DimensionMaxima:
        """Of all rows so far, at least one."""
        assert self._seen
        return DimensionMaxima(self._values, self._positions)


@dataclass(frozen=True, slots=True, eq=False)
class PointOutliers:
    """The residual stream at one point of a model."""

    layer: int | None  # behind which it is read; None: the embeddings
    all_tokens: DimensionMaxima
    after_first: DimensionMaxima  # without the token at position 0


@dataclass(frozen=True, slots=True)
class Reign:
    """The same dimension is the largest in a row of layers."""

    dimension: int
    first_layer: int
    last_layer: int

    @property
    def layers(self) -> int:
        """How many."""
        return self.last_layer - self.first_layer + 1


def reigns(points: Sequence[PointOutliers]) -> tuple[Reign, ...]:
    """Which dimension is the largest from which layer to which, in the order of the layers."""
    tops = [
        (point.layer, point.all_tokens.top(1)[0].dimension)
        for point in points
        if point.layer is not None
    ]
    found = []
    for dimension, group in groupby(tops, key=lambda top: top[1]):
        layers = [layer for layer, _ in group]
        found.append(Reign(dimension, layers[0], layers[-1]))
    return tuple(found)


def largest_point(points: Sequence[PointOutliers]) -> PointOutliers:
    """The point with the largest value; of equal ones the first."""
    return max(points, key=lambda point: point.all_tokens.maximum)
