"""Codes and scales of every kind of scheme are those of the plain loops, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from farthing import _native
from quantization import rounding_model as model

IQ4_NL = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int8
)
Rounded = tuple[NDArray[np.uint8], NDArray[np.uint16], NDArray[np.uint16] | None]


def native(values: NDArray[np.float32], group: int, method: str, kind: str, bits: int) -> Rounded:
    codebook = IQ4_NL if kind == "codebook" else None
    return _native.round_weights(
        values, group, method, bits=bits, minimum=kind == "affine", codebook=codebook
    )


def plain(values: NDArray[np.float32], group: int, method: str, kind: str, bits: int) -> Rounded:
    rows, cols = values.shape
    whole = group == WHOLE_MATRIX
    shape = (1, 1) if whole else (rows, -(-cols // group))
    codes = np.zeros((rows, cols), np.uint8)
    numbers = np.zeros((2, *shape), np.float16)
    for row, g in np.ndindex(shape):
        part = np.s_[:] if whole else np.s_[row : row + 1, g * group : (g + 1) * group]
        x = values[part]
        if kind == "affine":
            codes[part], *numbers[:, row, g] = model.affine(x, bits, method, whole)
        else:
            levels = model.Table(IQ4_NL) if kind == "codebook" else model.Uniform(bits)
            codes[part], numbers[0, row, g] = model.scaled(x, levels, method, whole)
    halves = numbers.view(np.uint16)
    return codes, halves[0], halves[1] if kind == "affine" else None


def assert_same(actual: Rounded, expected: Rounded) -> None:
    for a, b in zip(actual, expected, strict=True):
        assert (a is None) == (b is None)
        if a is not None and b is not None:
            np.testing.assert_array_equal(a, b)


def weights(seed: int, rows: int, cols: int) -> NDArray[np.float32]:
    """Rows of several kinds: normal, heavy tails, an offset, a lattice, small, with outliers."""
    rng = np.random.default_rng(seed)
    kinds = [
        lambda: rng.standard_normal(cols) * 0.02,
        lambda: rng.standard_t(2, cols) * 0.02,
        lambda: rng.standard_normal(cols) * 0.02 + 0.3,
        lambda: rng.integers(-8, 8, cols) * 0.0123,
        lambda: rng.standard_normal(cols) * 1e-6,
        lambda: np.where(rng.random(cols) < 0.02, 100.0, rng.standard_normal(cols)),
    ]
    return np.stack([kinds[i % len(kinds)]() for i in range(rows)]).astype(np.float32)


METHODS = ["absmax", "mse", "weighted"]
KINDS = [*(("symmetric", bits) for bits in range(2, 9)),
         *(("affine", bits) for bits in range(2, 9)), ("codebook", 4)]  # fmt: skip
WHOLE_MATRIX = 0


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("kind", "bits"), KINDS)
def test_bits_are_those_of_plain_loops(kind: str, bits: int, method: str) -> None:
    for seed, (group, cols, rows) in enumerate(
        [(32, 33, 6), (16, 40, 6), (128, 133, 2), (140, 140, 2), (WHOLE_MATRIX, 37, 6)]
    ):
        values = weights(seed, rows, cols)
        assert_same(
            native(values, group, method, kind, bits), plain(values, group, method, kind, bits)
        )


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=20),
    st.sampled_from(KINDS),
    st.sampled_from(METHODS),
)
def test_any_group_has_the_bits_of_plain_loops(
    values: list[float], kind: tuple[str, int], method: str
) -> None:
    array = np.array([values], np.float32)
    assert_same(native(array, 16, method, *kind), plain(array, 16, method, *kind))


def test_the_comparison_can_fail() -> None:
    values = weights(3, 1, 32)
    searched, scales, _ = native(values, 32, "mse", "symmetric", 4)
    with pytest.raises(AssertionError):
        assert_same((searched, scales, None), plain(values, 32, "absmax", "symmetric", 4))
