"""Where GGUF defines a format, its package reads our codes as the same weights."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from farthing.quantization import QuantizedTensor, scheme
from farthing.quantization.rounding import ROUNDING_METHODS, RoundingMethod, round_weights

FORMATS = {"w4g32": "Q4_0", "w4g32m": "Q4_1", "w5g32": "Q5_0", "w5g32m": "Q5_1", "w8g32": "Q8_0",
           "iq4_nl": "IQ4_NL"}  # fmt: skip
ROWS, COLS = 24, 320


def weights() -> NDArray[np.float32]:
    return (np.random.default_rng(23).standard_t(4, (ROWS, COLS)) * 0.03).astype(np.float32)


def blocks_of(tensor: QuantizedTensor) -> NDArray[np.uint8]:
    """The codes and scales as GGUF's blocks of 32 columns (ggml-common.h).

    Halves of a block share bytes; fifth bits follow the numbers.
    """
    codes = tensor.codes.reshape(ROWS, -1, 32)
    parts = [tensor.scales[..., None].view(np.uint8)]
    if tensor.minimums is not None:
        parts.append(tensor.minimums[..., None].view(np.uint8))
    bits = tensor.row.code_bits
    if bits == 8:
        parts.append(codes ^ 128)
    else:
        if bits == 5:
            parts.append(np.packbits(codes >> 4, axis=-1, bitorder="little"))
        low, high = np.split(codes & 15, 2, axis=-1)
        parts.append(low | high << 4)
    return np.concatenate(parts, axis=-1).reshape(ROWS, -1)


@pytest.mark.parametrize("method", ROUNDING_METHODS)
@pytest.mark.parametrize("name", FORMATS)
def test_gguf_dequantizes_our_codes_to_our_weights(name: str, method: RoundingMethod) -> None:
    tensor = round_weights(weights(), scheme(name), method)
    theirs = gguf.dequantize(blocks_of(tensor), gguf.GGMLQuantizationType[FORMATS[name]])
    np.testing.assert_array_equal(theirs, tensor.dequantize())


@pytest.mark.parametrize("name", ["w4g32m", "w5g32m", "w8g32"])
def test_its_quantizer_has_the_scales_of_absmax_and_codes_next_to_ours(name: str) -> None:
    """It divides by the scale before that is rounded to fp16."""
    kind = gguf.GGMLQuantizationType[FORMATS[name]]
    theirs = gguf.quantize(weights(), kind)
    tensor = round_weights(weights(), scheme(name), "absmax")
    ours = blocks_of(tensor)
    numbers = 4 if tensor.minimums is not None else 2
    _, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    shape = (ROWS, -1, block_bytes)
    np.testing.assert_array_equal(
        theirs.reshape(shape)[..., :numbers], ours.reshape(shape)[..., :numbers]
    )
    steps = np.repeat(tensor.scales.astype(np.float32), 32, axis=1)
    apart = np.rint((gguf.dequantize(theirs, kind) - tensor.dequantize()) / steps)
    assert np.abs(apart).max() <= 1
    assert (apart != 0).mean() < 0.02


@pytest.mark.parametrize("name", ["w4g32", "w4g32m", "w5g32", "w5g32m", "w8g32"])
def test_the_least_squared_error_is_less_than_that_of_its_quantizer(name: str) -> None:
    kind = gguf.GGMLQuantizationType[FORMATS[name]]
    theirs = gguf.dequantize(gguf.quantize(weights(), kind), kind)
    ours = round_weights(weights(), scheme(name), "mse").dequantize()
    errors = [((weights().astype(float) - near) ** 2).sum() for near in (ours, theirs)]
    assert errors[0] < errors[1]
