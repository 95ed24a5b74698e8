"""Packing keeps every bit of a checkpoint's blocks and adds none."""

from __future__ import annotations

import gc
import itertools
import weakref
from concurrent.futures import ThreadPoolExecutor

import gguf
import numpy as np
import pytest
from gguf import quants

from farthing import _native
from farthing.quantization import QuantizedTensor
from farthing.quantization import scheme as find_scheme
from kernels import linear_numerics as numerics
from support.aligned import aligned

ISAS = _native.supported_isas()


def gguf_type(scheme: str) -> gguf.GGMLQuantizationType:
    return gguf.GGMLQuantizationType[scheme.upper()]


packed = numerics.matrix


def test_the_scheme_table_agrees_with_the_checkpoint_format() -> None:
    rows = {row["name"]: row for row in _native.schemes()}
    own = [name for name in numerics.CODE_SCHEMES if name not in numerics.ALIASES]
    assert sorted(rows) == sorted((*numerics.CHECKPOINT_SCHEMES, *own))
    for name in numerics.CHECKPOINT_SCHEMES:
        row = rows[name]
        assert gguf.GGML_QUANT_SIZES[gguf_type(name)] == (row["block_cols"], row["block_bytes"])
        assert row["activation_group"] == numerics.activation_group(name)
    for name in own:
        assert (rows[name]["block_cols"], rows[name]["block_bytes"]) == (0, 0)


def test_the_scheme_table_has_the_traits_of_the_families() -> None:
    rows = {row["alias"] or row["name"]: row for row in _native.schemes()}
    assert {row["alias"]: row["name"] for row in _native.schemes() if row["alias"]} == (
        numerics.ALIASES
    )
    for name, row in numerics.CODE_SCHEMES.items():
        traits = rows[name]
        codebook = None if row.codebook is None else list(row.codebook)
        assert traits["bits"] == row.bits
        assert traits["group"] == row.group
        assert traits["minimum"] == row.minimum
        assert traits["activation_group"] == row.activation_group
        assert traits["codebook"] == codebook
        assert traits["scale_levels"] == 1
    assert rows["iq4_nl"]["codebook"] == list(numerics.IQ4_NL)
    assert rows["iq4_nl"]["codebook"] == [int(v) for v in quants.IQ4_NL.kvalues]
    assert [rows[name]["bits"] for name in numerics.FLOAT_SCHEMES] == [32, 16, 16]
    assert [rows[name]["scale_levels"] for name in ("f32", "q4_k", "q6_k")] == [0, 2, 2]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("scheme", numerics.CHECKPOINT_SCHEMES)
def test_packed_rows_dequantize_to_the_bits_of_the_gguf_package(scheme: str, isa: str) -> None:
    rng = np.random.default_rng(1)
    cols = {1: 45, 32: 2080, 256: 2304}[numerics.BLOCK_COLS[scheme]]
    for scale in (0.02, 1e-6, 1e4):
        raw = numerics.random_rows(scheme, 37, cols, rng, scale)
        want = quants.dequantize(raw, gguf_type(scheme))
        got = packed(scheme, raw, cols).dequantize(0, 37, isa)
        np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32))
        assert np.unique(got).size > (100 if scale > 1e-3 else 10)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("scheme", numerics.CODE_SCHEMES)
@pytest.mark.parametrize("cols", [1, 45, 300, 1024])
def test_packed_codes_dequantize_to_the_value_of_the_tensor(
    cols: int, scheme: str, isa: str
) -> None:
    rng = np.random.default_rng(5)
    raw = numerics.random_rows(scheme, 37, cols, rng)
    codes, scales, minimums = numerics.fields(scheme, raw, cols)
    tensor = QuantizedTensor(
        scheme,
        codes,
        scales.view(np.float16),
        None if minimums is None else minimums.view(np.float16),
    )
    row = numerics.CODE_SCHEMES[scheme]
    group = np.arange(cols) // (row.group or cols)
    want = scales.view(np.float16).astype(np.float32)[:, group]
    want = want * row.values(codes).astype(np.float32)
    if minimums is not None:
        want = want + minimums.view(np.float16).astype(np.float32)[:, group]
    got = packed(scheme, raw, cols).dequantize(0, 37, isa)
    np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32))
    np.testing.assert_array_equal(tensor.dequantize().view(np.uint32), want.view(np.uint32))


@pytest.mark.parametrize("alias", numerics.ALIASES)
def test_codes_of_a_checkpoint_pack_to_the_bytes_its_blocks_do(alias: str) -> None:
    rng = np.random.default_rng(6)
    name, cols = numerics.ALIASES[alias], 224
    raw = numerics.random_rows(name, 19, cols, rng)
    weights = numerics.decode(name, raw, cols)
    bits = numerics.CODE_SCHEMES[alias].bits
    zero = 0 if alias.endswith("m") else 1 << (bits - 1)
    codes = (weights.codes.reshape(19, cols) + zero).astype(np.uint8)
    halves = [weights.scales] if weights.minimums is None else [weights.scales, weights.minimums]
    m = _native.Matrix(alias, 19, cols)
    assert m.scheme == name
    m.pack_codes(0, codes, *(h.astype(np.float16).view(np.uint16) for h in halves))
    np.testing.assert_array_equal(m.packed_bytes(), packed(name, raw, cols).packed_bytes())


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
    raw = numerics.random_rows(scheme, 5, 512, rng)
    w = numerics.decode(scheme, raw, 512)
    step = w.scales[..., None] * w.sub_scales.astype(np.float32)
    values = step[..., None] * w.codes.astype(np.float32)
    if w.minimums is not None:
        shift = w.minimums[..., None] * w.sub_minimums.astype(np.float32)
        values = values + shift[..., None]
    np.testing.assert_array_equal(values.reshape(5, 512), quants.dequantize(raw, gguf_type(scheme)))


@pytest.mark.parametrize("scheme", numerics.CHECKPOINT_SCHEMES)
def test_a_packed_matrix_takes_exactly_the_bytes_of_its_checkpoint(scheme: str) -> None:
    rows, cols = 64, 1024
    source = rows * cols // numerics.BLOCK_COLS[scheme] * numerics.BLOCK_BYTES[scheme]
    assert _native.Matrix(scheme, rows, cols).nbytes == source


@pytest.mark.parametrize("scheme", numerics.CODE_SCHEMES)
def test_a_packed_matrix_of_codes_takes_the_bytes_of_the_table(scheme: str) -> None:
    rows, cols = 64, 1024
    more = 32 if not numerics.CODE_SCHEMES[scheme].group else 0  # half of a row block's one line
    size = _native.Matrix(scheme, rows, cols).nbytes
    assert size == rows * find_scheme(scheme).row_bytes(cols) + rows // 16 * more


@pytest.mark.parametrize("scheme", numerics.SCHEMES)
@pytest.mark.parametrize("cols", [512, 345])
def test_packed_bytes_make_the_same_matrix_again(cols: int, scheme: str) -> None:
    if cols % numerics.BLOCK_COLS.get(scheme, 1):
        cols = 768
    rng = np.random.default_rng(8)
    first = packed(scheme, numerics.random_rows(scheme, 37, cols, rng), cols)
    view = first.packed_bytes()
    assert view.nbytes == first.nbytes
    assert not view.flags.writeable
    copy = aligned(view)
    again = _native.Matrix.from_packed(scheme, 37, cols, copy)
    np.testing.assert_array_equal(
        again.dequantize(0, 37).view(np.uint32), first.dequantize(0, 37).view(np.uint32)
    )
    x = rng.standard_normal((40, cols)).astype(np.float32)
    for isa in ISAS:
        want = _native.linear(first, x[:9], isa)
        got = _native.linear(again, x[:9], isa)
        np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32))
    assert again.packed_bytes().ctypes.data == copy.ctypes.data  # nothing was copied


def test_packed_bytes_outlive_the_names_of_their_array() -> None:
    raw = numerics.random_rows("w4g64", 32, 128, np.random.default_rng(9))
    first = packed("w4g64", raw, 128)
    want = first.dequantize(0, 32)
    copy = aligned(first.packed_bytes())
    alive = weakref.ref(copy)
    again = _native.Matrix.from_packed("w4g64", 32, 128, copy)
    view = first.packed_bytes()
    del copy, first
    gc.collect()
    np.testing.assert_array_equal(again.dequantize(0, 32), want)
    np.testing.assert_array_equal(view, again.packed_bytes())
    assert alive() is not None
    del again
    gc.collect()
    assert alive() is None


def test_packed_bytes_that_do_not_fit_are_refused() -> None:
    m = _native.Matrix("w4g64", 32, 128)
    with pytest.raises(ValueError, match=rf"takes {m.nbytes} bytes, not {m.nbytes - 64}"):
        _native.Matrix.from_packed("w4g64", 32, 128, aligned(m.packed_bytes()[64:]))
    with pytest.raises(ValueError, match="multiple of 64, not 16 past one"):
        _native.Matrix.from_packed("w4g64", 32, 128, aligned(m.packed_bytes(), 16))
    again = _native.Matrix.from_packed("q4_0", 32, 64, aligned(np.zeros(32 * 36, np.uint8)))
    with pytest.raises(ValueError, match="cannot be packed again"):
        again.pack(0, np.zeros(36, np.uint8))
    with pytest.raises(ValueError, match="cannot be packed again"):
        again.pack_codes(0, np.zeros((1, 64), np.uint8), np.zeros((1, 2), np.uint16))


def test_codes_that_do_not_fit_are_refused() -> None:
    m = _native.Matrix("w5g64", 20, 100)
    codes, scales = np.zeros((3, 100), np.uint8), np.zeros((3, 2), np.uint16)
    with pytest.raises(ValueError, match=r"codes must be \(3, 100\), not \(3, 99\)"):
        m.pack_codes(0, codes[:, :99].copy(), scales)
    with pytest.raises(ValueError, match=r"scales must be \(3, 2\), not \(3, 1\)"):
        m.pack_codes(0, codes, scales[:, :1].copy())
    with pytest.raises(ValueError, match="w5g64 has no minimums"):
        m.pack_codes(0, codes, scales, scales)
    with pytest.raises(ValueError, match="3 rows from row 18 on, of a matrix of 20 rows"):
        m.pack_codes(18, codes, scales)
    codes[2, 7] = 32
    with pytest.raises(ValueError, match="codes of 0 to 31, got 32 at row 12, column 7"):
        m.pack_codes(10, codes, scales)
    codes[2, 7] = 31
    m.pack_codes(10, codes, scales)
    with pytest.raises(ValueError, match="w4g64m needs minimums"):
        _native.Matrix("w4g64m", 3, 100).pack_codes(0, codes & 15, scales)
    for scheme in ("f16", "q4_k"):
        with pytest.raises(ValueError, match=f"{scheme} is not codes with one level of scales"):
            _native.Matrix(scheme, 3, 256).pack_codes(0, np.zeros((3, 256), np.uint8), scales)
    with pytest.raises(ValueError, match="w5g64 is the format of no checkpoint"):
        m.pack(0, np.zeros(100, np.uint8))
    with pytest.raises(ValueError, match="w5g64 has no codebook"):
        _native.Matrix("w5g64", 3, 100, np.zeros(16, np.int8))
    with pytest.raises(ValueError, match="a codebook has 16 values, not 15"):
        _native.Matrix("nf4g64", 3, 100, np.zeros(15, np.int8))


@pytest.mark.parametrize("scheme", numerics.SCHEMES)
def test_row_ranges_may_come_in_any_order_from_many_threads(scheme: str) -> None:
    rng = np.random.default_rng(3)
    cols = 512
    raw = numerics.random_rows(scheme, 203, cols, rng)
    cuts = [0, *sorted(rng.choice(np.arange(1, 203), 40, replace=False).tolist()), 203]
    ranges = list(itertools.pairwise(cuts))
    rng.shuffle(ranges)
    m = _native.Matrix(scheme, 203, cols)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda r: numerics.pack(m, scheme, int(r[0]), raw[r[0] : r[1]]), ranges))
    want = packed(scheme, raw, cols)
    np.testing.assert_array_equal(
        m.dequantize(0, 203).view(np.uint32), want.dequantize(0, 203).view(np.uint32)
    )
    np.testing.assert_array_equal(
        m.dequantize(50, 3).view(np.uint32), want.dequantize(0, 203)[50:53].view(np.uint32)
    )


def test_rows_not_packed_are_zero() -> None:
    m = _native.Matrix("q4_k", 40, 256)
    raw = numerics.random_rows("q4_k", 1, 256, np.random.default_rng(4))
    m.pack(17, raw.reshape(-1))
    values = m.dequantize(0, 40)
    assert values[17].any()
    assert not np.delete(values, 17, axis=0).any()


def test_sizes_that_do_not_fit_are_refused_with_both_numbers() -> None:
    with pytest.raises(ValueError, match="q4_k needs a multiple of 256 columns, got 896"):
        _native.Matrix("q4_k", 16, 896)
    with pytest.raises(ValueError, match="q4_0 needs a multiple of 32 columns, got 40"):
        _native.Matrix("q4_0", 16, 40).pack(0, np.zeros(36, np.uint8))
    with pytest.raises(ValueError, match="0, 32"):
        _native.Matrix("q4_0", 0, 32)
    with pytest.raises(ValueError, match=r"no scheme 'q3_k'; .*q4_0 \(w4g32\), .*w8row"):
        _native.Matrix("q3_k", 16, 256)
    m = _native.Matrix("q4_0", 16, 64)
    with pytest.raises(ValueError, match="37 bytes are not whole rows of 36 bytes"):
        m.pack(0, np.zeros(37, np.uint8))
    with pytest.raises(ValueError, match="2 rows from row 15 on, of a matrix of 16 rows"):
        m.pack(15, np.zeros(72, np.uint8))
    with pytest.raises(ValueError, match="10 rows from row 10 on, of a matrix of 16 rows"):
        m.dequantize(10, 10)
    with pytest.raises(ValueError, match="2 rows from row -1 on"):
        m.dequantize(-1, 2)
