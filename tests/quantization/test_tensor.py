"""A quantized tensor says what does not fit, and dequantizes as its scheme says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from farthing.errors import InvalidParameterError
from farthing.quantization import QuantizedTensor


def tensor(scheme: str = "w4g64", **changed: Any) -> QuantizedTensor:
    rng = np.random.default_rng(1)
    fields: dict[str, Any] = {
        "codes": rng.integers(0, 16, (3, 100), np.uint8),
        "scales": rng.standard_normal((3, 2)).astype(np.float16),
    }
    return QuantizedTensor(scheme, **{**fields, **changed})


def test_values_are_scale_times_code_less_the_zero_point() -> None:
    t = tensor()
    assert t.shape == (3, 100)
    assert t.bits_per_weight == 8 * 68 / 100
    values = t.dequantize()
    assert values.dtype == np.float32
    assert values[2, 64] == np.float32(t.scales[2, 1]) * (int(t.codes[2, 64]) - 8)
    assert values[0, 63] == np.float32(t.scales[0, 0]) * (int(t.codes[0, 63]) - 8)


def test_values_with_a_minimum_are_scale_times_code_and_the_minimum() -> None:
    minimums = np.array([[1, -2], [3, 0.5], [-7, 9]], np.float16)
    t = tensor("w4g64m", minimums=minimums)
    values = t.dequantize()
    assert values[2, 64] == np.float32(t.scales[2, 1]) * int(t.codes[2, 64]) + 9
    assert values[1, 0] == np.float32(t.scales[1, 0]) * int(t.codes[1, 0]) + 3


def test_values_with_a_codebook_are_scale_times_its_value() -> None:
    t = tensor("nf4g64")
    assert t.dequantize()[0, 0] == np.float32(t.scales[0, 0]) * (
        -127, -88, -67, -50, -36, -23, -12, 0, 10, 20, 31, 43, 56, 71, 92, 127,
    )[t.codes[0, 0]]  # fmt: skip
    levels = np.arange(-8, 8, dtype=np.int8)
    own = tensor("nf4g64", codebook=levels).dequantize()
    np.testing.assert_array_equal(own, tensor("w4g64").dequantize())


def test_a_row_scheme_has_one_scale_a_row() -> None:
    scales = np.array([[0.5], [2], [-1]], np.float16)
    t = tensor("w4row", scales=scales)
    want = scales.astype(np.float32) * (t.codes.astype(np.float32) - 8)
    np.testing.assert_array_equal(t.dequantize(), want)


def test_a_tensor_scheme_has_one_scale_and_one_minimum() -> None:
    t = tensor("w4tensorm", scales=np.array([[0.5]], np.float16),
               minimums=np.array([[-3]], np.float16))  # fmt: skip
    np.testing.assert_array_equal(t.dequantize(), 0.5 * t.codes.astype(np.float32) - 3)
    assert t.bits_per_weight == 4 + 32 / 300


def test_a_learnt_codebook_is_the_matrix_s_own() -> None:
    levels = np.arange(-8, 8, dtype=np.int8) * 3
    t = tensor("km4g64", codebook=levels)
    np.testing.assert_array_equal(t.dequantize(), 3 * tensor("w4g64").dequantize())
    assert t.bits_per_weight == 8 * (3 * 68 + 16) / 300


@pytest.mark.parametrize(
    ("scheme", "changed", "message"),
    [
        ("q4_k", {}, "'q4_k' is not codes with one level of scales"),
        ("f16", {}, "'f16' is not codes with one level"),
        ("mxfp4", {}, "'mxfp4' is not codes with one level"),
        ("w9g64", {}, "no storage scheme is called 'w9g64'"),
        ("w4g64", {"codes": [[0] * 100] * 3}, "codes must be an array, not list"),
        ("w4g64", {"scales": [[1.0, 1.0]] * 3}, "scales of w4g64 must be an array, not list"),
        ("w4g64", {"codes": np.zeros(100, np.uint8)}, r"a matrix, not of shape \(100,\)"),
        ("w4g64", {"codes": np.zeros((0, 100), np.uint8)}, r"a matrix, not of shape \(0, 100\)"),
        ("w4g64", {"codes": np.zeros((3, 100), np.int8)}, "codes of w4g64 must be uint8"),
        ("w4g64", {"codes": np.full((3, 100), 16, np.uint8)}, "codes of 0 to 15, got 16"),
        ("w4g64", {"scales": np.ones((3, 2), np.float32)}, "scales of w4g64 must be float16"),
        ("w4g32", {}, r"scales of w4g32 must be float16 \(3, 4\), not float16 \(3, 2\)"),
        ("w4row", {}, r"scales of w4row must be float16 \(3, 1\)"),
        ("w4g64", {"scales": np.full((3, 2), np.inf, np.float16)}, r"scales at \(0, 0\) is inf"),
        ("w4g64", {"minimums": np.ones((3, 2), np.float16)}, "w4g64 has no minimums"),
        ("w4g64m", {}, "w4g64m needs minimums"),
        ("w4g64m", {"minimums": np.ones((3, 1), np.float16)}, "minimums of w4g64m must be"),
        ("w4g64m", {"minimums": np.full((3, 2), np.nan, np.float16)}, "minimums at .* is nan"),
        ("w4tensor", {}, r"scales of w4tensor must be float16 \(1, 1\)"),
        ("w3g64", {}, "w3g64 has codes of 0 to 7, got 15"),
        ("km4g64", {}, "km4g64 needs a codebook"),
        ("w4g64", {"codebook": np.zeros(16, np.int8)}, "w4g64 has no codebook"),
        ("nf4g64", {"codebook": np.zeros(15, np.int8)}, r"codebook of nf4g64 must be int8 \(16,\)"),
    ],
)
def test_what_does_not_fit_is_refused(scheme: str, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        tensor(scheme, **changed)
