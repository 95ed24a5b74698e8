"""One matrix closely, against plain NumPy."""

from __future__ import annotations

import statistics
import tracemalloc

import numpy as np
import pytest
from numpy.typing import NDArray

from farthing.evaluation.inspection.anatomy import BINS, Anatomy, dissect
from farthing.evaluation.inspection.weight_errors import CHAPTER_SCHEMES, find_schemes
from support.plain_rounding import round_plainly

ROWS, COLS = 70, 300  # no group divides the columns
PLANTED = {(3, 5): -2.5, (40, 299): 1.7, (69, 0): 0.9}


@pytest.fixture(scope="module")
def weights() -> NDArray[np.float32]:
    values = np.random.default_rng(5).normal(0.001, 0.1, (ROWS, COLS)).astype(np.float32)
    for place, value in PLANTED.items():
        values[place] = value
    return values


@pytest.fixture(scope="module")
def anatomy(weights: NDArray[np.float32]) -> Anatomy:
    return dissect("matrix", weights, find_schemes(CHAPTER_SCHEMES), "absmax")


def test_moments_and_tail_are_plain_numpys(weights: NDArray[np.float32], anatomy: Anatomy) -> None:
    exact = weights.astype(np.float64)
    sums = weights.size * 2.0**-53
    assert anatomy.shape == (ROWS, COLS)
    assert anatomy.weights == ROWS * COLS
    assert anatomy.mean_abs == pytest.approx(np.abs(exact).mean(), rel=sums, abs=0)
    assert anatomy.std == pytest.approx(exact.std(), rel=2 * sums, abs=0)
    assert anatomy.max_abs == 2.5
    assert anatomy.max_at == (3, 5)
    assert anatomy.max_to_std == 2.5 / anatomy.std > 20
    assert anatomy.beyond == len(PLANTED) == (np.abs(exact) > 6 * exact.std()).sum()


def test_the_histogram_has_every_weight(weights: NDArray[np.float32], anatomy: Anatomy) -> None:
    expected, edges = np.histogram(weights, BINS, (-2.5, 2.5))
    np.testing.assert_array_equal(anatomy.counts, expected)
    assert anatomy.counts.sum() == weights.size
    assert edges[BINS // 2] < 0 < edges[BINS // 2 + 1]


@pytest.mark.parametrize("scheme", [name for name in CHAPTER_SCHEMES if name.startswith("w")])
def test_steps_and_levels_are_those_of_plain_rounding(
    weights: NDArray[np.float32], anatomy: Anatomy, scheme: str
) -> None:
    (found,) = (steps for steps in anatomy.steps if steps.scheme == scheme)
    plain = round_plainly(weights, scheme)
    assert found.scales == len(plain.scales)
    assert (found.least_step, found.largest_step) == (min(plain.scales), max(plain.scales))
    assert found.median_step == pytest.approx(statistics.median(plain.scales), rel=2.0**-24)
    assert found.levels == 2 ** int(scheme[1])
    assert found.used == len(np.unique(plain.codes))
    by_scale = [len(np.unique(plain.codes[group])) for group in plain.groups]
    assert found.used_by_scale == statistics.median(by_scale)
    assert found.zeros == (plain.values == 0).sum()
    sums = 2 * weights.size * 2.0**-53
    assert found.error == pytest.approx(plain.error(weights), rel=sums, abs=0)
    assert found.even


def test_uneven_levels_have_a_mean_step(weights: NDArray[np.float32], anatomy: Anatomy) -> None:
    (found,) = (steps for steps in anatomy.steps if steps.scheme == "nf4g64")
    plain = round_plainly(weights, "nf4g64")
    assert found.scales == ROWS * 5
    served = np.float16(np.float32(2.5) / np.float32(127))  # as a scale of levels to 127
    assert found.largest_step == pytest.approx(float(served) * 254 / 15, rel=2.0**-22)
    assert found.error == pytest.approx(plain.error(weights), rel=2.0**-40, abs=0)
    assert (found.levels, found.used, found.even) == (16, 16, False)
    (with_minimum,) = dissect("m", weights, find_schemes(["w4g64m"]), "absmax").steps
    assert not with_minimum.even
    assert with_minimum.used == 16


def test_few_weights_set_the_step_for_all(anatomy: Anatomy) -> None:
    steps = {each.scheme: each for each in anatomy.steps}
    assert steps["w4tensor"].median_step > 5 * steps["w4row"].median_step
    assert steps["w4tensor"].zeros > 0.9 * anatomy.weights > 3 * steps["w4row"].zeros
    assert steps["w4tensor"].used < 8 < steps["w4g64"].used_by_scale


def test_the_largest_of_equal_weights_is_the_first(weights: NDArray[np.float32]) -> None:
    """In a matrix of several chunks, with the other sign too."""
    tall = np.tile(weights, (90, 1))
    for place in ((5000, 7), (5000, 200), (6200, 0)):
        tall[place] = 3.0
    tall[6299, 299] = -3.0
    assert tall.size > 1 << 20
    found = dissect("m", tall, (), "absmax")
    assert (found.max_at, found.max_abs) == ((5000, 7), 3.0)


def test_a_matrix_is_not_copied() -> None:
    values = np.random.default_rng(1).normal(0, 1, (12_000, 1024)).astype(np.float32)
    tracemalloc.start()
    dissect("m", values, find_schemes(["w4row"]), "absmax")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < values.nbytes, "a copy of all of it"


def test_a_matrix_of_zeros_has_no_step() -> None:
    values = np.zeros((16, 40), np.float32)
    found = dissect("zeros", values, find_schemes(["w4tensor", "w4row", "nf4g64"]), "absmax")
    assert (found.std, found.max_to_std, found.beyond, int(found.counts.sum())) == (0, 0, 0, 0)
    for steps in found.steps:
        assert (steps.largest_step, steps.used, steps.zeros, steps.error) == (0, 1, 640, 0)
