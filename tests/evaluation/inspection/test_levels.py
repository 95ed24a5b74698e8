"""INT8 levels against plain loops."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from numpy.typing import NDArray

import farthing.evaluation.inspection.levels as levels_module
from farthing.evaluation.inspection.levels import int8_levels, set_aside

PLANTED = (5, 17, 2, 30)


@pytest.fixture
def stream() -> NDArray[np.float32]:
    """Like a residual stream: four dimensions are hundreds of times the others."""
    values = np.random.default_rng(0).normal(0, 1, (19, 40)).astype(np.float32)
    for rank, dimension in enumerate(PLANTED):
        values[0, dimension] = 1000.0 / (rank + 1)
    values[:, 9] = 0
    return values


def codes_of(values: NDArray[np.float32]) -> list[list[int]]:
    """Codes by Python's own arithmetic: round() takes halves to even."""
    scale = max(abs(float(x)) for row in values for x in row) / 127
    return [[max(-128, min(127, round(float(x) / scale))) for x in row] for row in values]


def test_the_scale_is_the_maximum_by_127_exactly(stream: NDArray[np.float32]) -> None:
    levels = int8_levels(np.array([[1579.6, -3.0], [0.5, 2.0]], np.float32))
    assert levels.maximum == float(np.float32(1579.6))
    assert levels.scale == levels.maximum / 127
    assert f"{levels.scale:.4f}" == "12.4378"
    assert int8_levels(-stream).scale == int8_levels(stream).scale == 1000 / 127


def test_levels_are_those_of_a_plain_loop(stream: NDArray[np.float32]) -> None:
    levels = int8_levels(stream)
    codes = codes_of(stream)
    flat = [code for row in codes for code in row]
    assert levels.used == len(set(flat))
    assert [int(n) for n in levels.counts] == [flat.count(code) for code in range(-128, 128)]
    columns = [[row[i] for row in codes] for i in range(40)]
    assert levels.per_dimension.tolist() == [len(set(column)) for column in columns]
    assert levels.on_one_level == sum(len(set(column)) == 1 for column in columns)
    assert levels.all_zero == sum(set(column) == {0} for column in columns)
    assert levels.zero_share == flat.count(0) / len(flat)
    assert 4 <= levels.used < 16
    assert 30 <= levels.on_one_level <= 36


def test_without_the_largest_dimensions_the_rest_gets_the_levels(
    stream: NDArray[np.float32],
) -> None:
    found = set_aside(stream, PLANTED)
    rest = np.array([[x for i, x in enumerate(row) if i not in PLANTED] for row in stream])
    assert found.rest.maximum == np.abs(rest).max()
    assert found.rest.used == len({code for row in codes_of(rest) for code in row}) > 100
    assert found.rest.on_one_level == 1, "the dimension of zeros"
    assert len(found.rest.per_dimension) == 36
    assert found.ratio == 1000 / found.rest.maximum > 200
    assert found.dimensions == PLANTED


def test_a_few_dimensions_at_a_time_give_what_all_at_once_do(
    stream: NDArray[np.float32], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = set_aside(stream, PLANTED)
    for elements in (1, 19 * 7, 19 * 39):
        monkeypatch.setattr(levels_module, "_ELEMENTS", elements)
        pieces = set_aside(stream, PLANTED)
        for one, other in ((whole.whole, pieces.whole), (whole.rest, pieces.rest)):
            assert (one.maximum, one.scale, one.all_zero) == (
                *(other.maximum, other.scale, other.all_zero),
            )
            np.testing.assert_array_equal(one.counts, other.counts)
            np.testing.assert_array_equal(one.per_dimension, other.per_dimension)


def test_a_long_text_takes_little_more_memory_than_its_values() -> None:
    values = np.random.default_rng(1).normal(0, 1, (12_000, 1024)).astype(np.float32)
    tracemalloc.start()
    found = set_aside(values, (3, 4, 5, 6))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < values.nbytes, "copies of all of it"
    assert found.rest.counts.sum() == 12_000 * 1020


def test_zeros_have_no_scale() -> None:
    levels = int8_levels(np.zeros((3, 5), np.float32))
    assert (levels.scale, levels.used, levels.on_one_level, levels.zero_share) == (0, 1, 5, 1)
    assert set_aside(np.eye(1, 5, dtype=np.float32), (0,)).ratio is None
