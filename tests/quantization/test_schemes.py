"""The table of schemes agrees with the gguf package and with itself."""

from fractions import Fraction
from statistics import NormalDist

import gguf
import numpy as np
import pytest

from farthing import _native
from farthing.errors import InvalidParameterError
from farthing.quantization import (
    SCHEME_ALIASES,
    SCHEMES,
    SCHEMES_BY_GGUF_TYPE,
    Scheme,
    scheme,
)
from farthing.quantization.schemes import NF4_LEVELS, WHOLE_ROW, WHOLE_TENSOR

BITS = {
    "f32": 32, "f16": 16, "bf16": 16, "q4_0": 4.5, "q4_1": 5, "q5_0": 5.5, "q5_1": 6, "q8_0": 8.5,
    "q4_k": 4.5, "q5_k": 5.5, "q6_k": 6.5625, "iq4_nl": 4.5,
    "w4g64": 4.25, "w4g128": 4.125, "w4row": 4, "w4g64m": 4.5, "w4g128m": 4.25,
    "nf4g32": 4.5, "nf4g64": 4.25, "nf4g128": 4.125,
    "w5g16": 6, "w5g64": 5.25, "w5g128": 5.125, "w5row": 5,
    "w6g16": 7, "w6g32": 6.5, "w6g64": 6.25, "w6g128": 6.125, "w6row": 6,
    "w8g16": 9, "w8g64": 8.25, "w8g128": 8.125, "w8row": 8,
}  # fmt: skip
GGUF_ROWS = [row for row in SCHEMES.values() if row.gguf_type is not None]
OWN_ROWS = [row for row in SCHEMES.values() if row.gguf_type is None]


def dequantizes(row: Scheme) -> bool:
    zeros = np.zeros((1, row.block_bytes), np.uint8)
    try:
        gguf.dequantize(zeros, gguf.GGMLQuantizationType[row.name.upper()])
    except NotImplementedError:
        return False
    return True


@pytest.mark.parametrize("row", GGUF_ROWS, ids=lambda row: row.name)
def test_scheme_has_the_block_of_the_gguf_package(row: Scheme) -> None:
    kind = gguf.GGMLQuantizationType[row.name.upper()]
    assert row.gguf_type == kind.value
    assert (row.block_cols, row.block_bytes) == gguf.GGML_QUANT_SIZES[kind]


@pytest.mark.parametrize("row", GGUF_ROWS, ids=lambda row: row.name)
def test_scheme_is_refused_only_if_nothing_can_dequantize_it(row: Scheme) -> None:
    readable = dequantizes(row) or (row.family == "dense" and row.served)
    assert readable == (row.reading != "refused")


def test_every_type_of_the_gguf_package_has_a_row() -> None:
    assert set(SCHEMES_BY_GGUF_TYPE) == {kind.value for kind in gguf.GGML_QUANT_SIZES}


def test_kept_schemes_take_the_bits_their_layouts_say() -> None:
    kept = {row.name: row.bits_per_weight for row in SCHEMES.values() if row.served}
    assert kept == {name: Fraction(bits) for name, bits in BITS.items()}


@pytest.mark.parametrize("row", SCHEMES.values(), ids=lambda row: row.name)
def test_scheme_facts_fit_together(row: Scheme) -> None:
    assert row.group in (WHOLE_ROW, WHOLE_TENSOR) or row.block_cols % row.group == 0
    assert (row.scale_levels == 0) == (row.family in ("dense", "integer"))
    assert not row.minimum or row.scale_levels
    if row.served and row.scale_levels:
        # int8 activations share a scale over what one weight scale of the outer level covers
        assert row.activation_group == (row.block_cols if row.group else 64)
    else:
        assert row.activation_group == 0


@pytest.mark.parametrize("row", GGUF_ROWS, ids=lambda row: row.name)
def test_row_bytes_counts_whole_blocks_only(row: Scheme) -> None:
    assert row.row_bytes(0) == 0
    assert row.row_bytes(3 * row.block_cols) == 3 * row.block_bytes
    if row.block_cols > 1:
        with pytest.raises(InvalidParameterError, match=f"multiple of {row.block_cols}"):
            row.row_bytes(row.block_cols + 1)


@pytest.mark.parametrize("row", OWN_ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize(("rows", "cols"), [(1, 1), (7, 896), (3, 1000)])
def test_bits_of_our_own_schemes_count_codes_scales_and_codebook(
    rows: int, cols: int, row: Scheme
) -> None:
    assert row.code_bits is not None
    group = row.group if row.group > 0 else cols
    groups = -(-cols // group)
    assert row.groups(cols) == groups
    scales = 1 if row.group == WHOLE_TENSOR else rows * groups
    assert row.scale_shape(rows, cols) == (1 if row.group == WHOLE_TENSOR else rows, groups)
    bits = rows * 8 * -(-row.code_bits * groups * group // 8)  # a row ends with a whole byte
    bits += scales * 16 * (2 if row.minimum else 1) + (128 if row.codebook_learnt else 0)
    assert row.bits(rows, cols) == Fraction(bits, rows * cols)
    if row.group <= 0:
        assert row.bits_per_weight == row.code_bits < row.bits(rows, cols)
    elif cols % 128 == 0 and not row.codebook_learnt and cols % row.group == 0:
        assert row.bits(rows, cols) == row.bits_per_weight


GRANULARITIES = ("tensor", "row", "g16", "g32", "g64", "g128", "g256")


def test_any_bits_come_in_any_granularity() -> None:
    names = {
        f"{codes}{granularity}{suffix}"
        for codes in ("w2", "w3", "w4", "w5", "w6", "w7", "w8", "nf4", "km4")
        for granularity in GRANULARITIES
        for suffix in (("", "m") if codes.startswith("w") else ("",))
    }
    assert names == {row.name for row in OWN_ROWS} | set(SCHEME_ALIASES)
    for name in names:
        row = scheme(name)
        assert row.coded
        assert row.minimum == name.endswith("m")
        codes = "nf4 km4".find(name[:3]) < 0 and int(name[1])
        assert row.code_bits == (codes or 4)
        granularity = name[2 if codes else 3 :].removesuffix("m")
        assert row.group == {"tensor": WHOLE_TENSOR, "row": WHOLE_ROW}.get(
            granularity, granularity[0] == "g" and int(granularity[1:])
        )


def test_bits_a_weight_are_those_of_the_textbook() -> None:
    assert scheme("w4g128").bits_per_weight == Fraction("4.125")
    for name in ("w4g64", "nf4g64"):
        assert scheme(name).bits_per_weight == Fraction("4.25")
    parameters = 494_000_000
    for name, nbytes, gigabytes in (("f32", 4, "1.98"), ("f16", 2, "0.99"), ("w8row", 1, "0.49")):
        assert scheme(name).bits_per_weight / 8 == nbytes
        assert f"{parameters * nbytes / 10**9:.2f}" == gigabytes
    assert scheme("w8tensor").bits(896, 4864) == 8 + Fraction(16, 896 * 4864)
    assert scheme("w8row").bits(896, 4864) == 8 + Fraction(16, 4864)
    assert scheme("km4g64").bits(896, 4864) == Fraction("4.25") + Fraction(128, 896 * 4864)


def test_the_table_agrees_with_that_of_the_kernels() -> None:
    native = {row["name"]: row for row in _native.schemes()}
    kept = {row.name: row for row in SCHEMES.values() if row.served}
    assert sorted(native) == sorted(kept)
    assert {row["alias"]: name for name, row in native.items() if row["alias"]} == SCHEME_ALIASES
    for name, row in kept.items():
        facts = native[name]
        assert row.activation_group == facts["activation_group"]
        assert row.minimum == facts["minimum"]
        assert row.scale_levels == facts["scale_levels"]
        assert row.codebook == (facts["codebook"] and tuple(facts["codebook"]))
        if row.scale_levels:
            assert row.group == facts["group"]
            assert row.code_bits == facts["bits"]
        if row.gguf_type is not None:
            assert (row.block_cols, row.block_bytes) == (facts["block_cols"], facts["block_bytes"])


def test_codebooks_are_the_published_ones() -> None:
    assert [int(v) for v in gguf.quants.IQ4_NL.kvalues] == list(SCHEMES["iq4_nl"].codebook or ())
    published = """
        -1.0 -0.6961928009986877 -0.5250730514526367 -0.39491748809814453 -0.28444138169288635
        -0.18477343022823334 -0.09105003625154495 0.0 0.07958029955625534 0.16093020141124725
        0.24611230194568634 0.33791524171829224 0.44070982933044434 0.5626170039176941
        0.7229568362236023 1.0
    """  # QLoRA, appendix E
    assert list(NF4_LEVELS) == [float(level) for level in published.split()]
    # Normal quantiles as in the authors' bitsandbytes, ``create_normal_map``.
    offset = 0.9677083
    quantile = np.vectorize(NormalDist().inv_cdf)
    positive = quantile(np.linspace(offset, 0.5, 9)[:-1])
    negative = -quantile(np.linspace(offset, 0.5, 8)[:-1])
    levels = np.sort(np.concatenate([positive, [0], negative]))
    levels /= levels.max()
    assert np.abs(levels - NF4_LEVELS).max() < 1e-6, "the offset has seven digits"
    for name in ("nf4tensor", "nf4g64"):
        assert np.round(127 * levels).astype(int).tolist() == list(scheme(name).codebook or ())


def test_unknown_scheme_names_the_known_ones() -> None:
    assert scheme("q4_k") is SCHEMES["q4_k"]
    assert scheme("w4g32m") is SCHEMES["q4_1"]
    with pytest.raises(InvalidParameterError, match=r"'q9_9'; there are w4g64 .*nf4g64.*q4_0"):
        scheme("q9_9")
