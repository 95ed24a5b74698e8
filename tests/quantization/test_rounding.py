"""What holds of every rounding of weights, whatever its bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from farthing import _native
from quantization.test_rounding_bits import IQ4_NL, KINDS, METHODS, native, weights

NF4 = np.array([-127, -88, -67, -50, -36, -23, -12, 0, 10, 20, 31, 43, 56, 71, 92, 127], np.int8)


def errors(
    values: NDArray[np.float32],
    group: int,
    method: str,
    kind: str,
    bits: int,
    measure: str = "mse",
) -> NDArray[np.float64]:
    """Error of each group, (rows, groups), summed column after column in double."""
    codes, scales, minimums = native(values, group, method, kind, bits)
    total = np.zeros(scales.shape)
    for column in range(values.shape[1]):
        g = column // group
        code = codes[:, column]
        level = IQ4_NL[code].astype(float) if kind == "codebook" else code.astype(float)
        if kind == "symmetric":
            level -= 2 ** (bits - 1)
        value = scales.view(np.float16)[:, g].astype(float) * level
        if minimums is not None:
            value += minimums.view(np.float16)[:, g].astype(float)
        x = values[:, column]
        weight = np.abs(x).astype(float) if measure == "weighted" else 1.0
        total[:, g] += weight * (x.astype(float) - value) ** 2
    return total


@pytest.mark.parametrize("group", [16, 32, 64, 128, 300])
@pytest.mark.parametrize(("kind", "bits"), KINDS)
def test_no_group_is_worse_for_being_searched(kind: str, bits: int, group: int) -> None:
    values = weights(group, 240, 300)
    for measure in ("mse", "weighted"):
        searched = errors(values, group, measure, kind, bits, measure)
        plain = errors(values, group, "absmax", kind, bits, measure)
        assert (searched <= plain).all()
        assert (searched < plain).mean() > 0.4


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.floats(-6e4, 6e4, width=32), min_size=1, max_size=64),
    st.sampled_from(KINDS),
    st.integers(1, 64),
)
def test_no_group_of_any_values_is_worse_for_being_searched(
    values: list[float], kind: tuple[str, int], group: int
) -> None:
    array = np.array([values], np.float32)
    for measure in ("mse", "weighted"):
        searched = errors(array, group, measure, *kind, measure)
        assert (searched <= errors(array, group, "absmax", *kind, measure)).all()


@pytest.mark.parametrize(("kind", "bits"), KINDS)
def test_rows_do_not_depend_on_each_other(kind: str, bits: int) -> None:
    values = weights(1, 12, 96)
    whole = native(values, 32, "mse", kind, bits)
    for row in range(12):
        for a, b in zip(native(values[row : row + 1], 32, "mse", kind, bits), whole, strict=True):
            if a is not None and b is not None:
                np.testing.assert_array_equal(a[0], b[row])


def test_absmax_is_the_textbook_formula() -> None:
    values = np.random.default_rng(2).standard_t(3, (30, 64)).astype(np.float32)
    codes, scales, _ = native(values, 64, "absmax", "symmetric", 4)
    scale = (np.abs(values).max(1) / np.float32(7)).astype(np.float16)
    np.testing.assert_array_equal(scales[:, 0], scale.view(np.uint16))
    expected = np.clip(np.rint(values / scale.astype(np.float32)[:, None]), -8, 7) + 8
    np.testing.assert_array_equal(codes, expected)


def test_the_search_is_near_the_best_there_is() -> None:
    """Against all scales: the sum of squares of real numbers changes only where a code does."""
    values = np.random.default_rng(5).standard_normal((40, 32)).astype(np.float32)
    found = errors(values, 32, "mse", "symmetric", 4).sum()
    best = sum(best_error(row.astype(float), 8, 7) for row in values)
    assert best <= found
    finer = sum(best_error(row.astype(float), 9, 8) for row in values)
    assert found - best < best - finer, "less than one more level at each end would save"


def best_error(x: NDArray[np.float64], below: int, above: int) -> float:
    """The least squared error of scale * level, -below <= level <= above, over all scales."""
    best = 0.0
    for sign in (1, -1):
        steps = [
            ((k + 0.5) / abs(v), abs(v), 2 * k + 1)
            for v in sign * x
            for k in range(below if v < 0 else above)
        ]
        product = square = 0.0
        for _, dp, ds in sorted(steps):
            product, square = product + dp, square + ds
            best = max(best, product**2 / square)
    return float((x**2).sum()) - best


def test_zeros_and_weights_too_small_for_fp16_become_zero() -> None:
    for value in (0.0, 1e-30, -1e-9):
        values = np.full((1, 32), value, np.float32)
        for method in METHODS:
            codes, scales, _ = native(values, 32, method, "symmetric", 4)
            assert (codes == 8).all()
            assert scales[0, 0] == 0
            codes, scales, _ = native(values, 32, method, "codebook", 4)
            assert (codes == 8).all()
            assert scales[0, 0] == 0
            codes, scales, minimums = native(values, 32, method, "affine", 4)
            assert minimums is not None
            assert not codes.any()
            assert scales[0, 0] == 0
            assert minimums[0, 0] & 0x7FFF == 0


def test_a_constant_group_with_a_minimum_is_the_minimum() -> None:
    codes, scales, minimums = native(np.full((1, 32), -0.75, np.float32), 32, "mse", "affine", 4)
    assert minimums is not None
    assert not codes.any()
    assert scales[0, 0] == 0
    assert minimums.view(np.float16)[0, 0] == -0.75


@pytest.mark.parametrize("kind", ["symmetric", "codebook", "affine"])
@pytest.mark.parametrize("method", METHODS)
def test_a_scale_that_fp16_cannot_hold_is_refused(kind: str, method: str) -> None:
    values = np.zeros((3, 32), np.float32)
    values[2, 5] = 3e7
    with pytest.raises(ValueError, match="row 2: its weights need a scale that does not fit fp16"):
        native(values, 32, method, kind, 4)


def test_halves_are_those_of_numpy() -> None:
    """Through the scale of groups of one weight, which is that weight where levels end at 1."""
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    between = (halves[:-1] + halves[1:]) / 2  # ties
    near = np.nextafter(between, np.float32(0)), np.nextafter(between, np.float32(1e9))
    values = np.concatenate([halves, between, *near])[:, None]
    codebook = np.array([-127, *range(-14, 0), 1], np.int8)
    _, scales, _ = _native.round_weights(values, 1, "absmax", bits=4, codebook=codebook)
    np.testing.assert_array_equal(scales, values.astype(np.float16).view(np.uint16))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"group": -1}, "group must be positive"),
        ({"reach": 0.0, "codebook": NF4}, "reach must be positive"),
        ({"method": "best"}, "method must be"),
        ({"bits": 1}, "bits must be from 2 to 8"),
        ({"bits": 5, "codebook": NF4}, "a codebook has 4 bits"),
        ({"codebook": NF4[:15]}, "16 levels"),
        ({"codebook": NF4[::-1].copy()}, "ascend"),
        ({"codebook": np.arange(16, dtype=np.int8)}, "below and above zero"),
    ],
)
def test_impossible_jobs_are_refused(change: dict[str, object], words: str) -> None:
    arguments: dict[str, object] = {"group": 32, "method": "mse", "bits": 4, **change}
    with pytest.raises(ValueError, match=words):
        _native.round_weights(np.zeros((1, 32), np.float32), **arguments)  # type: ignore[arg-type]
