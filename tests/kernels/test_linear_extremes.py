"""Integer sums at the exact extremes of every scheme, in both directions, in tiles of every size.

AVX2 adds up products of 4, 5 and 6-bit codes in 16 bits, as many columns as fit
(``csrc/kernels/linear/avx2_records.h``). The numbers here say that the inputs reach the ends of
what these sums can hold, and that of inputs that reach them no longer sum would be right.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from farthing import _native
from kernels import linear_numerics as numerics
from kernels.linear_numerics import F32, Bytes, Ints

ISAS = _native.supported_isas()
# Blocks of the others are those of the schemes of codes that they are aliases of.
SCHEMES = (*numerics.CODE_SCHEMES, "iq4_nl", *numerics.TWO_LEVEL_BLOCKS)
COLS = 512
# Tiles of 1 to 8 tokens, and those of panels: of 13 tokens one has four and three have three.
COUNTS = (*range(1, 9), 13, 16, 65, 72)
MOST = 127  # of an activation
ONE = np.array([1], np.float16).view(np.uint8)


@dataclass(frozen=True)
class Format:
    """What of a scheme matters to sums in 16 bits."""

    bits: int
    zero: int  # taken off codes before they are multiplied; 0 where codes have a minimum
    group: int  # columns that share an activation scale and an integer scale

    @property
    def run(self) -> int:
        """Columns added up in 16 bits."""
        deepest = {4: 32, 5: 16, 6: 8}[self.bits] * (2 if self.zero else 1)
        return min(deepest, self.group)

    @property
    def largest(self) -> int:
        """Of what a code may stand for."""
        return self.zero or (1 << self.bits) - 1

    @property
    def extreme(self) -> int:
        """The largest sum: a 16-bit lane gets two of four columns."""
        return self.largest * MOST * self.run // 2


TWO_LEVEL = {"q4_k": Format(4, 0, 32), "q5_k": Format(5, 0, 32), "q6_k": Format(6, 32, 16)}
FORMATS = TWO_LEVEL | {
    name: Format(row.bits, 0 if row.minimum else 1 << (row.bits - 1), row.activation_group)
    for name, row in numerics.CODE_SCHEMES.items()
    if row.bits < 8 and row.codebook is None
}
SHORT_GROUPS = {"w4g32", "w5g16"}
"""Those whose groups end before 16 bits do."""


def code_patterns(bits: int) -> Bytes:
    """Codes (16, COLS): each end alone, both by pairs, by columns and at random, and the middle."""
    top, columns = (1 << bits) - 1, np.arange(COLS)
    rows = [
        np.zeros(COLS),
        np.full(COLS, top),
        np.where(columns % 4 < 2, 0, top),
        np.where(columns % 4 < 2, top, 0),
        columns % 2 * top,
        np.full(COLS, 1 << (bits - 1)),
        np.full(COLS, (1 << (bits - 1)) - 1),
    ]
    ends = np.random.default_rng(15).integers(0, 2, (16 - len(rows), COLS)) * top
    return np.concatenate([np.array(rows), ends]).astype(np.uint8)


def activation_patterns() -> F32:
    """Activations (9, COLS) that all are the largest of their group, of some sign."""
    columns = np.arange(COLS)
    rows = [
        np.ones(COLS),
        -np.ones(COLS),
        np.where(columns % 2, -1, 1),
        np.where(columns % 4 < 2, -1, 1),
        np.where(columns % 4 < 2, 1, -1),
        np.where(columns % 8 < 4, 1, -1),
        np.where(columns < COLS // 2, -1, 1),
        np.where(columns % 128, 0, 1),
        np.random.default_rng(16).integers(0, 2, COLS) * 2 - 1,
    ]
    return (np.array(rows) * 3).astype(np.float32)


def encode(scheme: str, codes: Bytes) -> Bytes:
    """Bytes of rows with these codes; scales one, integer scales the largest of either sign."""
    rows = codes.shape[0]
    if scheme in numerics.CODE_SCHEMES:
        halves = (numerics.row_bytes(scheme, COLS) - COLS) // 2
        return np.concatenate([codes, np.tile(ONE, (rows, halves))], axis=1)
    blocks = COLS // numerics.BLOCK_COLS[scheme]
    scale = np.tile(ONE, (rows, blocks, 1))
    if scheme == "iq4_nl":
        sixteens = codes.reshape(rows, blocks, 2, 16)
        parts = [scale, sixteens[..., 0, :] | sixteens[..., 1, :] << 4]
    elif scheme == "q6_k":
        halves_of = codes.reshape(rows, blocks, 2, 128)
        low_bits = (halves_of[..., :64] & 15) | (halves_of[..., 64:] & 15) << 4
        shifts = np.array([0, 2, 4, 6], np.uint8)[:, None]
        high_bits = ((halves_of.reshape(rows, blocks, 2, 4, 32) >> 4) << shifts).sum(axis=3)
        integers = np.resize(np.array([-128, 127, -128, -127], np.int8), (rows, blocks, 16))
        parts = [low_bits, high_bits, integers.view(np.uint8), scale]
    else:
        subs = codes.reshape(rows, blocks, 4, 2, 32)
        nibbles = (subs[..., 0, :] & 15) | (subs[..., 1, :] & 15) << 4
        fifths = np.packbits(codes.reshape(rows, blocks, 8, 32) >> 4, axis=2, bitorder="little")
        integers = np.full((rows, blocks, 12), 0xFF, np.uint8)  # 63 each
        parts = [scale, scale, integers, *([fifths] if scheme == "q5_k" else []), nibbles]
    whole = [part.reshape(rows, blocks, -1).astype(np.uint8) for part in parts]
    return np.concatenate(whole, axis=2).reshape(rows, -1)


def bits_of(scheme: str) -> int:
    if scheme in numerics.CODE_SCHEMES:
        return numerics.CODE_SCHEMES[scheme].bits
    return TWO_LEVEL[scheme].bits if scheme in TWO_LEVEL else 4


def values_of(scheme: str) -> Ints:
    """What the patterns' codes stand for (16, COLS)."""
    raw = encode(scheme, code_patterns(bits_of(scheme)))
    return numerics.decode(scheme, raw, COLS).codes.reshape(16, COLS)


def lanes(values: Ints, activations: Ints) -> Ints:
    """Products (rows, activations, quads, 2), two of a quad's four columns added up in each."""
    products = values[:, None] * activations
    return products.reshape(*products.shape[:2], -1, 2, 2).sum(axis=-1)


def sums_in_16_bits(unsigned: Ints, zero: int, activations: Ints, columns: int) -> Ints:
    """Sums of runs of ``columns`` (rows, activations, runs, 2) as 16 bits keep them."""
    shape = (unsigned.shape[0], activations.shape[0], -1, columns // 4, 2)
    begin = -zero * lanes(np.ones_like(unsigned), activations).reshape(shape).sum(axis=3)
    total = begin.astype(np.int16)
    with np.errstate(over="ignore"):
        for quad in np.moveaxis(lanes(unsigned, activations).reshape(shape), 3, 0):
            assert np.abs(quad).max() < 1 << 15, "a product pair saturates"
            total = total + quad.astype(np.int16)
    return total.astype(np.int64)


def quantized() -> NDArray[np.int64]:
    codes, _ = numerics.quantize(activation_patterns(), 128)
    assert set(np.unique(codes)) == {-MOST, 0, MOST}
    return codes.astype(np.int64)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_codes_written_are_those_meant(scheme: str) -> None:
    codes = code_patterns(bits_of(scheme)).astype(np.int64)
    if scheme in FORMATS:
        np.testing.assert_array_equal(values_of(scheme), codes - FORMATS[scheme].zero)
    elif bits_of(scheme) == 8:
        np.testing.assert_array_equal(values_of(scheme), codes - 128)
    else:
        levels = numerics.IQ4_NL if scheme == "iq4_nl" else numerics.NF4
        np.testing.assert_array_equal(values_of(scheme), np.array(levels)[codes])


@pytest.mark.parametrize("scheme", FORMATS)
def test_the_inputs_reach_both_ends_of_16_bits_and_longer_sums_would_not_fit(scheme: str) -> None:
    form, values, activations = FORMATS[scheme], values_of(scheme), quantized()
    pairs = lanes(values, activations)
    sums = pairs.reshape(16, -1, COLS // form.run, form.run // 4, 2).sum(axis=3)
    assert (sums.max(), sums.min()) == (form.extreme, -form.extreme)
    unsigned = values + form.zero
    np.testing.assert_array_equal(sums_in_16_bits(unsigned, form.zero, activations, form.run), sums)
    if scheme in SHORT_GROUPS:
        assert form.run == form.group
        return
    assert form.extreme == {(4, 0): 30_480, (5, 0): 31_496}.get((form.bits, form.zero), 32_512)
    # What comes next are the two products of another quad. Where codes have a zero point one of
    # them is too much already.
    more = 1 if form.zero else 2
    assert form.extreme + more * form.largest * MOST > 32_767
    longer = form.run + 4
    cut = COLS // longer * longer
    wrapped = sums_in_16_bits(unsigned[:, :cut], form.zero, activations[:, :cut], longer)
    pairs = lanes(values[:, :cut], activations[:, :cut])
    right = pairs.reshape(16, -1, cut // longer, longer // 4, 2).sum(axis=3)
    assert right.max() > 32_767
    assert right.min() < -32_768
    assert (wrapped != right)[np.abs(right) > 32_768].all()


def test_all_formats_are_driven_to_where_16_bits_end() -> None:
    deepest: dict[tuple[int, int], int] = {}
    for form in FORMATS.values():
        kind = form.bits, form.zero
        deepest[kind] = max(deepest.get(kind, 0), form.extreme)
    assert deepest == {
        (4, 8): 32_512,
        (5, 16): 32_512,
        (6, 32): 32_512,
        (4, 0): 30_480,
        (5, 0): 31_496,
    }
    assert {f.group for f in FORMATS.values()} == {16, 32, 64, 128}
    at_the_end = {name for name, f in FORMATS.items() if f.extreme > 30_000}
    assert set(FORMATS) - at_the_end == SHORT_GROUPS


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_sums_at_the_extremes_are_exact_in_tiles_of_every_size(scheme: str, isa: str) -> None:
    raw = encode(scheme, code_patterns(bits_of(scheme)))
    m, x = numerics.matrix(scheme, raw, COLS), activation_patterns()
    want = numerics.linear(scheme, raw, x)
    assert np.unique(want).size > 20
    tokens = [np.arange(len(x)), np.resize(np.arange(len(x)), 72)]
    for count in COUNTS:  # each place of a tile gets either end
        tokens += [np.arange(count) % 2, (np.arange(count) + 1) % 2]
    for chosen in tokens:
        got = _native.linear(m, x[chosen], isa)
        np.testing.assert_array_equal(numerics.bits(got), numerics.bits(want[chosen]))
