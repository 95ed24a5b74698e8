"""Packing keeps every bit of a checkpoint's blocks and adds none."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gguf
import numpy as np
import pytest
from gguf import quants
from numpy.typing import NDArray

from farthing import _native
from kernels import linear_numerics as numerics

ISAS = _native.supported_isas()


def gguf_type(scheme: str) -> gguf.GGMLQuantizationType:
    return gguf.GGMLQuantizationType[scheme.upper()]


def packed(scheme: str, raw: NDArray[np.uint8], cols: int) -> Any:
    m = _native.Matrix(scheme, raw.shape[0], cols)
    m.pack(0, raw.reshape(-1))
    return m


def test_the_scheme_table_agrees_with_the_checkpoint_format() -> None:
    rows = _native.schemes()
    assert [row["name"] for row in rows] == list(numerics.SCHEMES)
    for row in rows:
        assert gguf.GGML_QUANT_SIZES[gguf_type(row["name"])] == (
            row["block_cols"],
            row["block_bytes"],
        )
        expected = 0 if row["block_cols"] == 1 else row["block_cols"]
        assert row["activation_group"] == expected


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("scheme", numerics.SCHEMES)
def test_packed_rows_dequantize_to_the_bits_of_the_gguf_package(scheme: str, isa: str) -> None:
    rng = np.random.default_rng(1)
    cols = {1: 45, 32: 2080, 256: 2304}[numerics.BLOCK_COLS[scheme]]
    for scale in (0.02, 1e-6, 1e4):
        raw = numerics.random_blocks(scheme, 37, cols, rng, scale)
        want = quants.dequantize(raw, gguf_type(scheme))
        got = packed(scheme, raw, cols).dequantize(0, 37, isa)
        np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32))
        assert np.unique(got).size > (100 if scale > 1e-3 else 10)


@pytest.mark.parametrize("scheme", ["f16", "bf16"])
@pytest.mark.parametrize("isa", ISAS)
def test_every_half_converts_exactly(scheme: str, isa: str) -> None:
    raw = np.arange(65536, dtype=np.uint16).reshape(16, 4096)
    m = packed(scheme, raw.view(np.uint8), 4096)
    want = numerics.elements(scheme, raw.view(np.uint8))
    got = m.dequantize(0, 16, isa)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(numerics.bits(got), numerics.bits(want))
    one = np.ones((1, 4096), np.float32)
    for half in (raw[:, :1], raw[:, 2048:2049]):  # the kernels' own conversion
        column = packed(scheme, np.ascontiguousarray(half).view(np.uint8), 1)
        product = _native.linear(column, one[:, :1], isa)
        values = numerics.elements(scheme, np.ascontiguousarray(half).view(np.uint8))
        np.testing.assert_array_equal(product[0], values[:, 0] + np.float32(0))


@pytest.mark.parametrize("scheme", numerics.BLOCK_SCHEMES)
def test_the_independent_decoder_agrees_with_the_gguf_package(scheme: str) -> None:
    rng = np.random.default_rng(2)
    raw = numerics.random_blocks(scheme, 5, 512, rng)
    w = numerics.decode(scheme, raw, 512)
    step = w.scales[..., None] * w.sub_scales.astype(np.float32)
    values = step[..., None] * w.codes.astype(np.float32)
    if w.minimums is not None:
        shift = w.minimums[..., None] * w.sub_minimums.astype(np.float32)
        values = values + shift[..., None]
    np.testing.assert_array_equal(values.reshape(5, 512), quants.dequantize(raw, gguf_type(scheme)))


@pytest.mark.parametrize("scheme", numerics.SCHEMES)
def test_a_packed_matrix_takes_exactly_the_bytes_of_its_checkpoint(scheme: str) -> None:
    rows, cols = 64, 1024
    source = rows * cols // numerics.BLOCK_COLS[scheme] * numerics.BLOCK_BYTES[scheme]
    assert _native.Matrix(scheme, rows, cols).nbytes == source


@pytest.mark.parametrize("scheme", numerics.SCHEMES)
def test_row_ranges_may_come_in_any_order_from_many_threads(scheme: str) -> None:
    rng = np.random.default_rng(3)
    cols = 512
    raw = numerics.random_blocks(scheme, 203, cols, rng)
    cuts = [0, *sorted(rng.choice(np.arange(1, 203), 40, replace=False).tolist()), 203]
    ranges = list(itertools.pairwise(cuts))
    rng.shuffle(ranges)
    m = _native.Matrix(scheme, 203, cols)
    with ThreadPoolExecutor(4) as pool:
        counts = list(pool.map(lambda r: m.pack(int(r[0]), raw[r[0] : r[1]].reshape(-1)), ranges))
    assert sum(counts) == 203
    want = packed(scheme, raw, cols)
    np.testing.assert_array_equal(
        m.dequantize(0, 203).view(np.uint32), want.dequantize(0, 203).view(np.uint32)
    )
    np.testing.assert_array_equal(
        m.dequantize(50, 3).view(np.uint32), want.dequantize(0, 203)[50:53].view(np.uint32)
    )


def test_rows_not_packed_are_zero() -> None:
    m = _native.Matrix("q4_k", 40, 256)
    raw = numerics.random_blocks("q4_k", 1, 256, np.random.default_rng(4))
    m.pack(17, raw.reshape(-1))
    values = m.dequantize(0, 40)
    assert values[17].any()
    assert not np.delete(values, 17, axis=0).any()


def test_sizes_that_do_not_fit_are_refused_with_both_numbers() -> None:
    with pytest.raises(ValueError, match="q4_k needs a multiple of 256 columns, got 896"):
        _native.Matrix("q4_k", 16, 896)
    with pytest.raises(ValueError, match="0, 32"):
        _native.Matrix("q4_0", 0, 32)
    with pytest.raises(ValueError, match=r"no scheme 'q3_k'; one of: f32, .*q6_k"):
        _native.Matrix("q3_k", 16, 256)
    m = _native.Matrix("q4_0", 16, 64)
    with pytest.raises(ValueError, match="37 bytes are not whole rows of 36 bytes"):
        m.pack(0, np.zeros(37, np.uint8))
    with pytest.raises(ValueError, match="rows 15 to 17 of a matrix of 16 rows"):
        m.pack(15, np.zeros(72, np.uint8))
    with pytest.raises(ValueError, match="rows 10 to 20 of a matrix of 16 rows"):
        m.dequantize(10, 10)
    with pytest.raises(ValueError, match="rows -1 to 1"):
        m.dequantize(-1, 2)
