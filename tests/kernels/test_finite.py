"""NaNs and infinities in checkpoint bytes are found where they are, and nothing else is."""

from __future__ import annotations

from typing import Any

import gguf
import numpy as np
import pytest

from farthing import _native
from kernels import linear_numerics as numerics

COLS = {1: 96, 32: 96, 256: 512}
FLOATS = {"f32": np.uint32, "f16": np.uint16, "bf16": np.uint16}
EXPONENT = {"f32": 0x7F800000, "f16": 0x7C00, "bf16": 0x7F80}
SIGN = {"f32": 0x80000000, "f16": 0x8000, "bf16": 0x8000}


def finite_rows(scheme: str, rows: int = 5) -> np.ndarray:
    cols = COLS[numerics.BLOCK_COLS[scheme]]
    return numerics.random_blocks(scheme, rows, cols, np.random.default_rng(3), 0.02)


def scale_places(scheme: str) -> list[int]:
    """Bytes within a block at which the format has a fp16 number, from the gguf package.

    A place is one if making it infinite makes a value of the block not finite, and it is the low
    byte of the pair.
    """
    kind = gguf.GGMLQuantizationType[scheme.upper()]
    block = gguf.GGML_QUANT_SIZES[kind][1]
    places = []
    for at in range(block - 1):
        blocks = np.full((1, block), 0x11, np.uint8)
        blocks[0, at : at + 2] = (0x00, 0x7C)
        with np.errstate(all="ignore"):
            if not np.isfinite(gguf.dequantize(blocks, kind)).all():
                places.append(at)
    return places


@pytest.mark.parametrize("scheme", numerics.SCHEMES)
def test_finite_rows_have_none(scheme: str) -> None:
    assert _native.first_nonfinite(scheme, finite_rows(scheme)) is None
    assert _native.first_nonfinite(scheme, np.empty(0, np.uint8)) is None


@pytest.mark.parametrize("scheme", [s for s in numerics.SCHEMES if s not in FLOATS])
def test_a_scale_or_minimum_that_is_no_number_is_found(scheme: str) -> None:
    rows = finite_rows(scheme)
    block = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[scheme.upper()]][1]
    places = scale_places(scheme)
    assert len(places) == (2 if scheme in ("q4_1", "q5_1", "q4_k", "q5_k") else 1)
    for number in (0x7C00, 0xFC00, 0x7E00, 0x7C01, 0xFFFF):
        for start in range(0, rows.size, block):
            for place in places:
                bad = rows.copy().reshape(-1)
                bad[start + place : start + place + 2] = np.array([number], "<u2").view(np.uint8)
                assert _native.first_nonfinite(scheme, bad) == start + place
    largest = rows.copy().reshape(-1, block)
    for place in places:
        largest[:, place : place + 2] = np.array([0x7BFF], "<u2").view(np.uint8)
    assert _native.first_nonfinite(scheme, largest) is None


@pytest.mark.parametrize("scheme", FLOATS)
def test_a_weight_that_is_no_number_is_found_at_every_place(scheme: str) -> None:
    kind: Any = FLOATS[scheme]
    for count in (1, 3, 1023, 1024, 1025, 2100):
        rng = np.random.default_rng(count)
        words = rng.integers(0, EXPONENT[scheme], count, kind) | (
            rng.integers(0, 2, count, kind) * kind(SIGN[scheme])
        )
        assert _native.first_nonfinite(scheme, words.view(np.uint8)) is None
        for at in {0, count // 2, count - 1}:
            for rest in (0, 1, SIGN[scheme], SIGN[scheme] | 1):  # infinities and NaNs
                bad = words.copy()
                bad[at] = EXPONENT[scheme] | rest
                bad[at + 1 :] = bad[at]  # the first one counts
                found = _native.first_nonfinite(scheme, bad.view(np.uint8))
                assert found == at * bad.itemsize


@pytest.mark.parametrize("scheme", ["f16", "bf16"])
def test_every_half_is_judged_as_numpy_does(scheme: str) -> None:
    words = np.arange(65536, dtype=np.uint16)
    wide = words.astype(np.uint32) << 16
    values = words.view(np.float16) if scheme == "f16" else wide.view(np.float32)
    judged = [_native.first_nonfinite(scheme, w.view(np.uint8)) is None for w in words[:, None]]
    np.testing.assert_array_equal(judged, np.isfinite(values))


def test_part_of_a_block_is_refused() -> None:
    with pytest.raises(ValueError, match="35 bytes are not whole blocks of 18"):
        _native.first_nonfinite("q4_0", np.zeros(35, np.uint8))
