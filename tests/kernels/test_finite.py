"""NaNs and infinities in checkpoint bytes are found where they are, and nothing else is."""

from __future__ import annotations

from typing import Any

import gguf
import numpy as np
import pytest

from farthing import _native
from kernels import linear_numerics as numerics
from support.aligned import aligned

COLS = {1: 96, 32: 96, 256: 512}
FLOATS = {"f32": np.uint32, "f16": np.uint16, "bf16": np.uint16}
EXPONENT = {"f32": 0x7F800000, "f16": 0x7C00, "bf16": 0x7F80}
SIGN = {"f32": 0x80000000, "f16": 0x8000, "bf16": 0x8000}


def finite_rows(scheme: str, rows: int = 5) -> np.ndarray:
    cols = COLS[numerics.BLOCK_COLS[scheme]]
    return numerics.random_rows(scheme, rows, cols, np.random.default_rng(3), 0.02)


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


@pytest.mark.parametrize("scheme", numerics.CHECKPOINT_SCHEMES)
def test_finite_rows_have_none(scheme: str) -> None:
    assert _native.first_nonfinite(scheme, finite_rows(scheme)) is None
    assert _native.first_nonfinite(scheme, np.empty(0, np.uint8)) is None


@pytest.mark.parametrize("scheme", [s for s in numerics.CHECKPOINT_SCHEMES if s not in FLOATS])
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


def bad_places(scheme: str, cols: int) -> list[tuple[int, int, int]]:
    """(byte of a row in the tests' form, bytes of the number, column) of every number of a row."""
    if scheme in FLOATS:
        size = np.dtype(FLOATS[scheme]).itemsize
        return [(size * k, size, k) for k in range(cols)]
    if scheme in numerics.CODE_SCHEMES:
        row = numerics.CODE_SCHEMES[scheme]
        groups = row.groups(cols)
        halves = range((numerics.row_bytes(scheme, cols) - cols) // 2)
        return [(cols + 2 * i, 2, i % groups * row.group) for i in halves]
    block_cols, block = numerics.BLOCK_COLS[scheme], numerics.BLOCK_BYTES[scheme]
    return [
        (start * block + field, 2, start * block_cols)
        for start in range(cols // block_cols)
        for field in numerics.HALF_FIELDS[scheme]
    ]


@pytest.mark.parametrize("scheme", numerics.SCHEMES)
def test_a_packed_matrix_says_where_its_first_bad_number_is(scheme: str) -> None:
    rng = np.random.default_rng(7)
    cols = 300 if scheme in numerics.CODE_SCHEMES else COLS[numerics.BLOCK_COLS[scheme]]
    raw = numerics.random_rows(scheme, 37, cols, rng)
    assert numerics.matrix(scheme, raw, cols).first_nonfinite() is None
    places = bad_places(scheme, cols)
    assert len(places) >= (2 if scheme.endswith("m") else 1)
    for number in (0x7F80, 0xFFC0) if scheme == "bf16" else (0x7C00, 0xFC00, 0x7E00, 0x7C01):
        for row in (0, 15, 16, 36):
            at, size, column = places[rng.integers(len(places))]
            bad = raw.copy()
            bad[row, at : at + 2] = np.array([number], "<u2").view(np.uint8)
            if size == 4:
                wide = np.array([0x7F800000 | number & 0x83FF], "<u4")
                bad[row, at : at + 4] = wide.view(np.uint8)
            assert numerics.matrix(scheme, bad, cols).first_nonfinite() == (row, column)
            later = bad.copy()
            later[36, places[-1][0] : places[-1][0] + size] = bad[row, at : at + size]
            if row < 32:  # in an earlier row block
                assert numerics.matrix(scheme, later, cols).first_nonfinite() == (row, column)


@pytest.mark.parametrize("scheme", ["q8_0", "w4g64m", "w8g16", "w4row", "f16", "f32"])
def test_numbers_of_rows_that_are_not_there_do_not_count(scheme: str) -> None:
    """Row blocks are filled up; a packed file may carry anything there."""
    cols = 64
    raw = numerics.random_rows(scheme, 32, cols, np.random.default_rng(8))
    full = numerics.matrix(scheme, raw, cols)
    short = numerics.matrix(scheme, raw[:19].copy(), cols)
    assert short.nbytes == full.nbytes
    bytes_of_rest = aligned(full.packed_bytes() ^ short.packed_bytes())
    bad = aligned(short.packed_bytes())
    bad[bytes_of_rest != 0] = 0xFF  # belongs to rows 19 to 31
    assert (bad != short.packed_bytes()).any()
    assert _native.Matrix.from_packed(scheme, 19, cols, bad).first_nonfinite() is None
    assert _native.Matrix.from_packed(scheme, 32, cols, bad).first_nonfinite() is not None


def test_the_scales_of_a_group_that_only_fills_up_count() -> None:
    """They take part in the kernels' sums: groups of 16 go by twos."""
    m = _native.Matrix("w8g16", 16, 16)
    packed = aligned(m.packed_bytes())
    packed[32 + 2 * 5 : 32 + 2 * 5 + 2] = (0x00, 0x7C)
    assert _native.Matrix.from_packed("w8g16", 16, 16, packed).first_nonfinite() == (5, 15)
