"""Activations to int8: the documented rule, the same bits on every instruction set."""

from __future__ import annotations

import numpy as np
import pytest

from farthing import _native
from kernels import linear_numerics as numerics

ISAS = _native.supported_isas()
GROUPS = (16, 32, 64, 128, 256)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("cols", [768, 700, 497, 5])
def test_codes_scales_and_sums_follow_the_rule(cols: int, group: int, isa: str) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_cauchy((50, cols)).astype(np.float32)
    x[20:] = rng.standard_normal((30, cols))
    x[1] *= np.float32(1e-32)
    x[2] *= np.float32(1e30)
    x[3, 4] = 1e4
    x[4] = 0
    x[5, ::3] = -0.0
    codes, scales, sums = _native.quantize_rows(x, group, isa)
    want_codes, want_scales = numerics.quantize(x, group)
    np.testing.assert_array_equal(codes, want_codes)
    np.testing.assert_array_equal(scales.view(np.uint32), want_scales.view(np.uint32))
    np.testing.assert_array_equal(
        sums, want_codes.reshape(50, -1, 16).astype(np.int32).sum(axis=-1)
    )
    assert not codes[:, cols:].any()
    assert codes.min() == -127
    assert codes.max() == 127
    assert cols < 100 or np.unique(codes).size == 255


@pytest.mark.parametrize("isa", ISAS)
def test_halves_round_to_the_even_code(isa: str) -> None:
    x = np.zeros((1, 32), np.float32)
    x[0, 0] = 127
    x[0, 1:11] = [0.5, 1.5, 2.5, 3.5, -0.5, -1.5, -2.5, 126.5, 125.5, -126.5]
    codes, scales, _ = _native.quantize_rows(x, 32, isa)
    assert scales[0, 0] == 1
    assert codes[0, :11].tolist() == [127, 0, 2, 2, 4, 0, -2, -2, 126, 126, -126]


@pytest.mark.parametrize("isa", ISAS)
def test_groups_below_the_limit_are_zero_and_at_the_limit_are_not(isa: str) -> None:
    limit = np.float32(1e-30)
    x = np.zeros((3, 32), np.float32)
    x[0, 3] = np.nextafter(limit, np.float32(0))
    x[1, 3] = -limit
    x[2, 3] = np.float32(1e-45)
    codes, scales, _ = _native.quantize_rows(x, 32, isa)
    assert scales[:, 0].tolist() == [0, limit / np.float32(127), 0]
    assert codes[:, 3].tolist() == [0, -127, 0]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("group", GROUPS)
def test_a_group_with_a_nan_or_infinity_says_so_in_its_scale(
    group: int, bad: float, isa: str
) -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((1, 512)).astype(np.float32)
    x[0, group + 7] = bad
    codes, scales, sums = _native.quantize_rows(x, group, isa)
    assert np.isnan(scales[0, 1]) == np.isnan(bad)
    assert not np.isfinite(scales[0, 1])
    assert not codes[0, group : 2 * group].any()
    assert not sums[0, group // 16 : 2 * group // 16].any()
    clean, clean_scales, _ = _native.quantize_rows(x[:, :group].copy(), group, isa)
    np.testing.assert_array_equal(codes[:, :group], clean[:, :group])
    np.testing.assert_array_equal(scales[:, :1], clean_scales[:, :1])
    reference = _native.quantize_rows(x, group, "scalar")
    np.testing.assert_array_equal(codes, reference[0])
    np.testing.assert_array_equal(numerics.bits(scales), numerics.bits(reference[1]))


def test_groups_of_other_sizes_are_refused() -> None:
    for group in (0, -32, 8, 48, 512):
        with pytest.raises(ValueError, match=f"16, 32, 64, 128 or 256, not {group}"):
            _native.quantize_rows(np.zeros((1, 64), np.float32), group, "scalar")
