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


ISAS = _native.supported_isas()


def native(
    values: NDArray[np.float32],
    group: int,
    method: str,
    kind: str,
    bits: int,
    isa: str | None = None,
) -> Rounded:
    codebook = IQ4_NL if kind == "codebook" else None
    return _native.round_weights(
        values, group, method, bits=bits, minimum=kind == "affine", codebook=codebook, isa=isa
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
        [(32, 33, 6), (16, 72, 6), (128, 133, 2), (140, 140, 2), (WHOLE_MATRIX, 21, 18)]
    ):
        values = weights(seed, rows, cols)
        expected = plain(values, group, method, kind, bits)
        for isa in ISAS:
            assert_same(native(values, group, method, kind, bits, isa), expected)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("kind", "bits"), KINDS)
def test_every_isa_gives_the_same_bits(kind: str, bits: int, method: str) -> None:
    """Over more groups than a vector has lanes, and with groups of zeros among them."""
    for group, cols, rows in [(1, 5, 7), (16, 200, 13), (64, 900, 37), (777, 777, 35)]:
        values = weights(group, rows, cols)
        values[2] = 0.0
        values[3, :7] = -0.0
        for width in (group, WHOLE_MATRIX):
            expected = native(values, width, method, kind, bits, "scalar")
            for isa in ISAS:
                assert_same(native(values, width, method, kind, bits, isa), expected)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kind", ["symmetric", "codebook", "affine"])
def test_the_first_row_that_does_not_fit_is_named(kind: str, isa: str) -> None:
    """The ends of rows are rounded after all that comes before them in any row."""
    values = np.zeros((40, 40), np.float32)
    values[30, 39] = values[35, 3] = 3e7
    with pytest.raises(ValueError, match="row 30: "):
        native(values, 16, "absmax", kind, 4, isa)
    with pytest.raises(ValueError, match="row 0: "):
        native(values, WHOLE_MATRIX, "absmax", kind, 4, isa)


def test_an_unknown_isa_is_refused() -> None:
    with pytest.raises(ValueError, match="no instruction set is called 'sse'"):
        native(weights(0, 1, 32), 32, "mse", "symmetric", 4, "sse")


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
    expected = plain(array, 16, method, *kind)
    for isa in ISAS:
        assert_same(native(array, 16, method, *kind, isa), expected)


FLAT = [
    (2, -49, 10 * 2.0**-22, [4, 4, 3, 4, 1]),
    (3, -44, 10 * 2.0**-22, [4, 7, 1]),
    (4, -46, 10 * 2.0**-23, [1, 6, 0, 7, 2]),
    (5, -47, 10 * 2.0**-22, [3, 6, 4, 1, 5, 0]),
    (6, -41, 10 * 2.0**-21, [7, 7, 1, 1, 1]),
    (7, -38, 10 * 2.0**-18, [4, 6, 0, 1, 7, 4, 4, 0, 6]),
    (8, -41, 10 * 2.0**-19, [7, 2, 7]),
]
"""Bits, and weights of which the first two, 2^n, count for nothing and the others lie some units in
the last place above one of them: so flat that rounding errors decide where a line goes."""


@pytest.mark.parametrize(("bits", "power", "large", "places"), FLAT)
def test_a_scale_that_rounds_to_minus_zero_is_none(
    bits: int, power: int, large: float, places: list[int]
) -> None:
    near = (np.float32(large).view(np.uint32) + np.array(places, np.uint32)).view(np.float32)
    values = np.concatenate([np.full(2, 2.0**power, np.float32), near])[None]
    expected = plain(values, 16, "weighted", "affine", bits)
    assert expected[1].item() not in (0, 0x8000)
    for isa in ISAS:
        assert_same(native(values, 16, "weighted", "affine", bits, isa), expected)


def test_the_comparison_can_fail() -> None:
    values = weights(3, 1, 32)
    searched, scales, _ = native(values, 32, "mse", "symmetric", 4)
    with pytest.raises(AssertionError):
        assert_same((searched, scales, None), plain(values, 32, "absmax", "symmetric", 4))
