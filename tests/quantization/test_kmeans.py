"""Codebooks are the best there are, and those that were planted."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

from farthing.quantization import QuantizedTensor, scheme
from farthing.quantization.kmeans import best_codebook
from farthing.quantization.rounding import round_weights

NF4 = np.array(scheme("nf4g64").codebook, np.int8)
GRANULARITIES = ("tensor", "row", "g16", "g32", "g64", "g128", "g256")


def squared_error(values: NDArray[np.float32], tensor: QuantizedTensor) -> float:
    return float(((values.astype(float) - tensor.dequantize()) ** 2).sum())


def matrices() -> dict[str, NDArray[np.float32]]:
    rng = np.random.default_rng(11)
    shape = (40, 300)
    return {
        "normal": rng.standard_normal(shape).astype(np.float32),
        "heavy": rng.standard_t(2, shape).astype(np.float32),
        "uniform": rng.uniform(-1, 1, shape).astype(np.float32),
        "one-sided": rng.exponential(0.02, shape).astype(np.float32),
        "few values": rng.choice(np.array([-0.5, 0.1, 0.3], np.float32), shape),
    }


@pytest.mark.parametrize("granularity", GRANULARITIES)
@pytest.mark.parametrize("name", matrices())
def test_no_matrix_is_worse_than_with_the_levels_of_nf4(name: str, granularity: str) -> None:
    values = matrices()[name]
    learnt, nf4 = (
        squared_error(values, round_weights(values, scheme(codes + granularity), "absmax"))
        for codes in ("km4", "nf4")
    )
    assert learnt <= nf4
    assert learnt < 0.999 * nf4 or name == "few values"


@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_a_planted_codebook_is_found(granularity: str) -> None:
    planted = np.array(
        [-127, -101, -77, -70, -31, -30, -9, 2, 3, 17, 40, 44, 71, 99, 126, 127], np.int8
    )
    rng = np.random.default_rng(3)
    codes = rng.integers(0, 16, (16, 256))
    codes[:, ::16] = 0  # every group reaches -127
    values = planted[codes].astype(np.float32) * np.float32(0.0009765625)
    tensor = round_weights(values, scheme("km4" + granularity), "absmax")
    np.testing.assert_array_equal(tensor.codebook, planted)
    np.testing.assert_array_equal(tensor.codes, codes)
    np.testing.assert_array_equal(tensor.dequantize(), values)


def sums_of(values: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    bins = np.floor(2 * values).astype(int) + 254
    return np.stack([np.bincount(bins, weights * values**k, 509) for k in range(3)], axis=1)


def error_of(
    values: NDArray[np.float64], weights: NDArray[np.float64], levels: NDArray[np.int8]
) -> float:
    distance = np.abs(values[:, None] - levels.astype(float)).min(axis=1)
    return float((weights * distance**2).sum())


def test_no_neighbouring_codebook_is_better() -> None:
    """Every level moved by one, and every level put at any other place."""
    rng = np.random.default_rng(8)
    values = np.clip(rng.standard_t(3, 5000) * 20, -127, 127)
    weights = rng.random(5000)
    best = best_codebook(sums_of(values, weights))
    assert (np.diff(best.astype(int)) > 0).all()
    least = error_of(values, weights, best)
    others = [np.delete(best, i) for i in range(16)]
    for rest, level in itertools.product(others, range(-127, 128)):
        if level not in rest:
            changed = np.sort(np.append(rest, np.int8(level)))
            assert error_of(values, weights, changed) >= least * (1 - 1e-12)


def test_fewer_values_than_levels_leave_no_error() -> None:
    values = np.array([-100.0, 3.0, 4.0, 90.0])
    best = best_codebook(sums_of(values, np.ones(4)))
    assert error_of(values, np.ones(4), best) == 0
    assert len(set(best.tolist())) == 16


def test_a_matrix_of_zeros_has_a_codebook_too() -> None:
    tensor = round_weights(np.zeros((3, 40), np.float32), scheme("km4g64"), "weighted")
    np.testing.assert_array_equal(tensor.codebook, NF4)
    assert not tensor.dequantize().any()
