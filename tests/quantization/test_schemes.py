"""The table of schemes agrees with the gguf package and with itself."""

from fractions import Fraction

import gguf
import numpy as np
import pytest

from farthing.errors import InvalidParameterError
from farthing.quantization import SCHEMES, SCHEMES_BY_GGUF_TYPE, Scheme, scheme

BITS = {
    "f32": 32, "f16": 16, "bf16": 16, "q4_0": 4.5, "q4_1": 5, "q5_0": 5.5, "q5_1": 6, "q8_0": 8.5,
    "q4_k": 4.5, "q5_k": 5.5, "q6_k": 6.5625,
}  # fmt: skip


def dequantizes(row: Scheme) -> bool:
    zeros = np.zeros((1, row.block_bytes), np.uint8)
    try:
        gguf.dequantize(zeros, gguf.GGMLQuantizationType[row.name.upper()])
    except NotImplementedError:
        return False
    return True


@pytest.mark.parametrize("row", SCHEMES.values(), ids=lambda row: row.name)
def test_scheme_has_the_block_of_the_gguf_package(row: Scheme) -> None:
    kind = gguf.GGMLQuantizationType[row.name.upper()]
    assert row.gguf_type == kind.value
    assert (row.block_cols, row.block_bytes) == gguf.GGML_QUANT_SIZES[kind]


@pytest.mark.parametrize("row", SCHEMES.values(), ids=lambda row: row.name)
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
    assert row.block_cols % row.group == 0
    assert (row.scale_levels == 0) == (row.family in ("dense", "integer"))
    assert not row.minimum or row.scale_levels
    if row.served and row.scale_levels:
        # int8 activations share a scale over what one weight scale of the outer level covers
        assert row.activation_group == row.block_cols
    else:
        assert row.activation_group == 0


@pytest.mark.parametrize("row", SCHEMES.values(), ids=lambda row: row.name)
def test_row_bytes_counts_whole_blocks_only(row: Scheme) -> None:
    assert row.row_bytes(0) == 0
    assert row.row_bytes(3 * row.block_cols) == 3 * row.block_bytes
    if row.block_cols > 1:
        with pytest.raises(InvalidParameterError, match=f"multiple of {row.block_cols}"):
            row.row_bytes(row.block_cols + 1)


def test_unknown_scheme_names_the_known_ones() -> None:
    assert scheme("q4_k") is SCHEMES["q4_k"]
    with pytest.raises(InvalidParameterError, match=r"'q9_9'.*q4_0"):
        scheme("q9_9")
