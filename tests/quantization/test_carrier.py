"""What a scheme is served in holds its values, and gives their products, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from farthing import _native
from farthing.errors import InvalidParameterError
from farthing.program.weights import pack_quantized
from farthing.quantization import SCHEMES, QuantizedTensor, Scheme, scheme
from farthing.quantization.carrier import can_serve, carrier_of, carry
from farthing.quantization.rounding import round_weights
from kernels.linear_numerics import fma32

CARRIED = [row for row in SCHEMES.values() if not row.served and can_serve(row)]
REFUSED = [row for row in SCHEMES.values() if row.coded and not can_serve(row)]
CARRIERS = {
    "w2g64": "w4g64", "w3g32": "q4_0", "w3tensor": "w4row", "w4tensor": "w4row", "w4g256": "w4g128",
    "w4g16": "w5g16", "w3g16": "w5g16", "w2g32m": "q4_1", "w3g64m": "w4g64m", "w4rowm": "w4g128m",
    "w4tensorm": "w4g128m", "w4g256m": "w4g128m", "w5g64m": "q5_1", "w5rowm": "q5_1",
    "w5tensor": "w5row", "w6g256": "w6g128", "w7g16": "w8g16", "w7g32": "q8_0", "w7row": "w8row",
    "w8tensor": "w8row", "w8g256": "w8g128", "nf4row": "nf4g128", "nf4tensor": "nf4g128",
    "nf4g256": "nf4g128", "nf4g16": "w8g16", "km4g16": "w8g16", "km4g32": "nf4g32",
    "km4g64": "nf4g64", "km4tensor": "nf4g128",
}  # fmt: skip


def example(row: Scheme, rows: int = 19, cols: int = 700) -> QuantizedTensor:
    """Every code, negative scales too."""
    rng = np.random.default_rng(5)
    shape = row.scale_shape(rows, cols)
    codes = rng.integers(0, 1 << (row.code_bits or 0), (rows, cols), np.uint8)
    numbers = rng.standard_normal((2, *shape)).astype(np.float16)
    levels = np.sort(rng.choice(np.arange(-128, 128), 16, replace=False)).astype(np.int8)
    return QuantizedTensor(
        row.name,
        codes,
        numbers[0],
        numbers[1] if row.minimum else None,
        levels if row.codebook_learnt else None,
    )


@pytest.mark.parametrize("row", CARRIED, ids=lambda row: row.name)
def test_a_carrier_holds_the_same_values(row: Scheme) -> None:
    for cols in (1, 100, 128, 700):
        tensor = example(row, cols=cols)
        carried = carry(tensor)
        assert carried.scheme == carrier_of(row).name
        np.testing.assert_array_equal(
            carried.dequantize().view(np.uint32), tensor.dequantize().view(np.uint32)
        )


def plain_product(
    tensor: QuantizedTensor, codes: NDArray[np.int8], scales: NDArray[np.float32], group: int
) -> NDArray[np.float32]:
    """The documented sum for the tensor's own codes: one ``fma`` a group, two with a minimum."""
    row, (rows, cols) = tensor.row, tensor.shape
    levels = tensor.levels.astype(np.int64)[tensor.codes]
    wide = row.group if row.group > 0 else cols
    total = np.zeros((len(codes), rows), np.float32)
    for g, start in enumerate(range(0, cols, group)):
        part = slice(start, start + group)
        x, sums = codes[:, part].astype(np.int64), scales[:, g, None]
        product = tensor.scales[:, start // wide].astype(np.float32) * sums
        total = fma32(np.broadcast_to(product, total.shape), (x @ levels[:, part].T), total)
        if tensor.minimums is not None:
            low = tensor.minimums[:, start // wide].astype(np.float32) * sums
            total = fma32(np.broadcast_to(low, total.shape), x.sum(axis=1)[:, None], total)
    return total


@pytest.mark.parametrize("row", CARRIED, ids=lambda row: row.name)
@pytest.mark.parametrize("isa", _native.supported_isas())
def test_products_are_those_of_the_scheme_s_own_codes(isa: str, row: Scheme) -> None:
    tensor = example(row, rows=5, cols=333)
    group = carrier_of(row).activation_group
    x = np.random.default_rng(6).standard_normal((2, 333)).astype(np.float32)
    codes, scales, _ = _native.quantize_rows(x, group, isa)
    got = _native.linear(pack_quantized(carry(tensor)), x, isa)
    expected = plain_product(tensor, codes[:, :333], scales, group)
    np.testing.assert_array_equal(got, expected)


def test_the_smallest_layout_that_fits_is_taken() -> None:
    assert {name: carrier_of(scheme(name)).name for name in CARRIERS} == CARRIERS
    for row in SCHEMES.values():
        if row.served:
            assert carrier_of(row) is row
    tensor = example(scheme("w4g64"))
    assert carry(tensor) is tensor


def test_only_minimums_have_too_few_layouts() -> None:
    names = {row.name for row in REFUSED}
    assert all(row.minimum for row in REFUSED)
    granularities = ("tensor", "row", "g16", "g32", "g64", "g128", "g256")
    wide = {f"w{bits}{granularity}m" for bits in (6, 7, 8) for granularity in granularities}
    assert names == wide | {f"w{bits}g16m" for bits in (2, 3, 4, 5)}
    assert len(CARRIED) + len(REFUSED) == sum(r.reading == "unserved" for r in SCHEMES.values())


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("w8g64m", "no kernel can serve w8g64m; w5g64m or w8g64 would do"),
        ("w6tensorm", "no kernel can serve w6tensorm; w5tensorm or w6tensor would do"),
        ("w4g16m", "no kernel can serve w4g16m; w4g32m or w4g16 would do"),
        ("q2_k", "no kernel can serve q2_k$"),
    ],
)
def test_what_nothing_holds_is_refused_and_what_would_do_is_named(name: str, words: str) -> None:
    with pytest.raises(InvalidParameterError, match=words):
        carrier_of(scheme(name))


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: row.name)
def test_every_refusal_names_schemes_that_can_be_served(row: Scheme) -> None:
    with pytest.raises(InvalidParameterError) as refusal:
        carrier_of(row)
    named = str(refusal.value).partition("; ")[2].removesuffix(" would do").split(" or ")
    assert all(can_serve(scheme(name)) for name in named)


def test_rounded_weights_are_carried_as_they_are() -> None:
    values = np.random.default_rng(9).standard_t(3, (33, 520)).astype(np.float32)
    for row in CARRIED:
        tensor = round_weights(values, row, "absmax")
        packed = pack_quantized(carry(tensor))
        np.testing.assert_array_equal(packed.dequantize(0, 33), tensor.dequantize())
