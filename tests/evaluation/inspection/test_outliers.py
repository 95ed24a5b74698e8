"""Maxima by dimension against plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from farthing.evaluation.inspection.outliers import (
    DimensionMaxima,
    Outlier,
    PointOutliers,
    Reign,
    RunningMaxima,
    largest_point,
    reigns,
)


@pytest.fixture
def rows() -> NDArray[np.float32]:
    """Magnitudes over some twenty octaves; a dimension of zeros, one that never changes."""
    rng = np.random.default_rng(1)
    values = np.exp2(rng.uniform(-10, 10, (23, 50))) * rng.choice([-1, 1], (23, 50))
    values[:, 7] = 0
    values[:, 11] = -2.0
    return values.astype(np.float32)


def maxima(rows: NDArray[np.float32], pieces: int = 1) -> DimensionMaxima:
    running = RunningMaxima(rows.shape[1])
    start = 0
    for piece in np.array_split(rows, pieces):
        running.add(start, piece)
        start += len(piece)
    return running.result()


@pytest.mark.parametrize("pieces", [1, 2, 5, 23, 40])  # of 40, some are empty
def test_maxima_are_those_of_a_plain_loop(rows: NDArray[np.float32], pieces: int) -> None:
    found = maxima(rows, pieces)
    for dimension in range(50):
        column = [float(x) for x in rows[:, dimension]]
        magnitudes = [abs(x) for x in column]
        position = magnitudes.index(max(magnitudes))
        assert found.positions[dimension] == position
        assert found.values[dimension] == column[position]
    assert found.maximum == max(abs(float(x)) for x in rows.flat)
    ordered = sorted(np.abs(found.values).tolist())
    assert found.median == (ordered[24] + ordered[25]) / 2


def test_the_top_is_ordered_and_equal_ones_ascend(rows: NDArray[np.float32]) -> None:
    rows[3, 40], rows[5, 20], rows[6, 30] = 5000, -6000, -5000
    assert maxima(rows).top(3) == (
        Outlier(20, -6000.0, 5),
        Outlier(30, -5000.0, 6),
        Outlier(40, 5000.0, 3),
    )
    assert len(maxima(rows).top()) == 4


def test_octaves_are_those_of_a_plain_loop(rows: NDArray[np.float32]) -> None:
    found = maxima(rows)
    exponents = [math.floor(math.log2(m)) for m in found.magnitudes.tolist() if m > 0]
    assert len(exponents) == 49
    expected = {k: exponents.count(k) for k in range(min(exponents), max(exponents) + 1)}
    assert found.octaves() == expected
    assert 0 in expected.values(), "no gap to be filled"
    edges = np.array([[2.0, np.nextafter(np.float32(2), np.float32(0)), 0.25, 0.0]], np.float32)
    assert maxima(edges).octaves() == {-2: 1, -1: 0, 0: 1, 1: 1}
    assert maxima(np.zeros((2, 3), np.float32)).octaves() == {}


def test_reigns_say_which_dimension_stays_the_largest() -> None:
    def point(layer: int | None, top: int, value: float) -> PointOutliers:
        rows = np.ones((2, 8), np.float32)
        rows[1, top] = value
        return PointOutliers(layer, maxima(rows), maxima(rows[1:]))

    tops = [(None, 1, 9.0), (0, 1, 3.0), (1, 4, 50.0), (2, 4, -70.0), (3, 4, 60.0), (4, 1, 70.0)]
    points = [point(*top) for top in tops]
    assert reigns(points) == (Reign(1, 0, 0), Reign(4, 1, 3), Reign(1, 4, 4))
    assert [r.layers for r in reigns(points)] == [1, 3, 1]
    assert largest_point(points).layer == 2
