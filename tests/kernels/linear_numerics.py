"""The documented numerics of the linear kernels in NumPy, exact and independent of the C++ code.

``csrc/kernels/linear/linear.h`` states them; nothing here knows the packed layout.

A matrix is bytes, one row after the other: a checkpoint's blocks, or for schemes that are in no
checkpoint (and our names of those that are) the codes, one a byte, then the fp16 scales, then the
fp16 minimums.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from farthing import _native

F32 = NDArray[np.float32]
Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]

FLOAT_SCHEMES = ("f32", "f16", "bf16")
ONE_LEVEL_BLOCKS = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "iq4_nl")
TWO_LEVEL_BLOCKS = ("q4_k", "q5_k", "q6_k")
BLOCK_SCHEMES = ONE_LEVEL_BLOCKS + TWO_LEVEL_BLOCKS
CHECKPOINT_SCHEMES = FLOAT_SCHEMES + BLOCK_SCHEMES
BLOCK_COLS = (
    dict.fromkeys(FLOAT_SCHEMES, 1)
    | dict.fromkeys(ONE_LEVEL_BLOCKS, 32)
    | dict.fromkeys(TWO_LEVEL_BLOCKS, 256)
)
BLOCK_BYTES = dict(
    zip(CHECKPOINT_SCHEMES, (4, 2, 2, 18, 20, 22, 24, 34, 18, 144, 176, 210), strict=True)
)
# Byte offsets of a block's fp16 fields.
HALF_FIELDS = {
    "q4_0": (0,),
    "q4_1": (0, 2),
    "q5_0": (0,),
    "q5_1": (0, 2),
    "q8_0": (0,),
    "iq4_nl": (0,),
    "q4_k": (0, 2),
    "q5_k": (0, 2),
    "q6_k": (208,),
}
WHOLE_ROW = 0
FLOAT_RUN = 256  # columns of a float chain

IQ4_NL = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
NF4_LEVELS = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
    -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
    0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
    0.7229568362236023, 1.0,
)  # fmt: skip
NF4 = tuple(round(127 * level) for level in NF4_LEVELS)


@dataclass(frozen=True)
class Codes:
    """A scheme of codes with one level of scales."""

    bits: int
    group: int
    minimum: bool = False
    codebook: tuple[int, ...] | None = None

    @property
    def activation_group(self) -> int:
        return self.group or 64

    def groups(self, cols: int) -> int:
        return -(-cols // self.group) if self.group else 1

    def values(self, codes: Bytes) -> Ints:
        if self.codebook is not None:
            return np.array(self.codebook, np.int64)[codes]
        return codes.astype(np.int64) - (0 if self.minimum else 1 << (self.bits - 1))


CODE_SCHEMES = {
    "w4g32": Codes(4, 32),
    "w4g64": Codes(4, 64),
    "w4g128": Codes(4, 128),
    "w4row": Codes(4, WHOLE_ROW),
    "w4g32m": Codes(4, 32, minimum=True),
    "w4g64m": Codes(4, 64, minimum=True),
    "w4g128m": Codes(4, 128, minimum=True),
    "nf4g32": Codes(4, 32, codebook=NF4),
    "nf4g64": Codes(4, 64, codebook=NF4),
    "nf4g128": Codes(4, 128, codebook=NF4),
    "w5g16": Codes(5, 16),
    "w5g32": Codes(5, 32),
    "w5g64": Codes(5, 64),
    "w5g128": Codes(5, 128),
    "w5row": Codes(5, WHOLE_ROW),
    "w5g32m": Codes(5, 32, minimum=True),
    "w6g16": Codes(6, 16),
    "w6g32": Codes(6, 32),
    "w6g64": Codes(6, 64),
    "w6g128": Codes(6, 128),
    "w6row": Codes(6, WHOLE_ROW),
    "w8g16": Codes(8, 16),
    "w8g32": Codes(8, 32),
    "w8g64": Codes(8, 64),
    "w8g128": Codes(8, 128),
    "w8row": Codes(8, WHOLE_ROW),
}
INTEGER_SCHEMES = (*BLOCK_SCHEMES, *CODE_SCHEMES)
SCHEMES = (*FLOAT_SCHEMES, *INTEGER_SCHEMES)
ALIASES = {"w4g32": "q4_0", "w4g32m": "q4_1", "w5g32": "q5_0", "w5g32m": "q5_1", "w8g32": "q8_0"}


def activation_group(scheme: str) -> int:
    """Columns of an activation that share a scale; 0 for float schemes."""
    if scheme in CODE_SCHEMES:
        return CODE_SCHEMES[scheme].activation_group
    return 0 if scheme in FLOAT_SCHEMES else BLOCK_COLS[scheme]


def padded(cols: int, group: int) -> int:
    """Columns a row of activations is filled up to: whole groups, and whole 32s."""
    unit = max(group, 32)
    return -(-cols // unit) * unit


def row_bytes(scheme: str, cols: int) -> int:
    """Bytes of a row of ``cols`` columns in the form of this module."""
    if scheme in CODE_SCHEMES:
        row = CODE_SCHEMES[scheme]
        return cols + 2 * row.groups(cols) * (2 if row.minimum else 1)
    return cols // BLOCK_COLS[scheme] * BLOCK_BYTES[scheme]


def fma32(a: F32, b: F32, c: F32) -> F32:
    """``a * b + c`` rounded once to float32.

    The product is exact in float64. The sum is made in float64 and, where it was inexact, its last
    bit is set (rounding to odd), after which rounding to float32 cannot round twice (Boldo and
    Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
    """
    product = a.astype(np.float64) * b.astype(np.float64)
    addend = c.astype(np.float64)
    total = product + addend
    virtual = total - product
    error = (product - (total - virtual)) + (addend - virtual)
    bits = np.atleast_1d(total).view(np.int64).copy()
    error = np.atleast_1d(error)
    inexact = np.isfinite(error) & (error != 0) & (bits & 1 == 0)
    # Towards the error: magnitude up if it has the sum's sign, else down.
    away = (error > 0) == (np.atleast_1d(total) > 0)
    bits += np.where(inexact, np.where(away, 1, -1), 0)
    return bits.view(np.float64).reshape(np.shape(total)).astype(np.float32)


@dataclass(frozen=True)
class Weights:
    """A matrix as integers and scales: (rows, activation groups, ...) arrays.

    ``codes`` (rows, groups, subs, columns of a sub-block), zero point removed. ``sub_scales`` and
    ``sub_minimums`` (rows, groups, subs). ``minimums`` already has the sign it is added with.
    """

    codes: Ints
    scales: F32
    sub_scales: Ints
    minimums: F32 | None
    sub_minimums: Ints


def _halves(raw: Bytes, offset: int) -> F32:
    field = np.ascontiguousarray(raw[..., offset : offset + 2]).view(np.float16)
    return field[..., 0].astype(np.float32)


def _six_bit_pairs(raw: Bytes) -> tuple[Ints, Ints]:
    """12 bytes -> eight scales and eight minimums of 6 bits (q4_k, q5_k)."""
    b = raw.astype(np.int64)
    low, middle, mixed = b[..., 0:4], b[..., 4:8], b[..., 8:12]
    scales = np.concatenate([low & 63, (mixed & 15) + 16 * (low >> 6)], axis=-1)
    minimums = np.concatenate([middle & 63, (mixed >> 4) + 16 * (middle >> 6)], axis=-1)
    return scales, minimums


def _bits(raw: Bytes) -> Ints:
    return np.unpackbits(raw, axis=-1, bitorder="little").astype(np.int64)


def fields(scheme: str, raw: Bytes, cols: int) -> tuple[Bytes, Bytes, Bytes | None]:
    """Codes (rows, cols), and the bytes of scales and minimums, of a scheme of codes."""
    row = CODE_SCHEMES[scheme]
    end = cols + 2 * row.groups(cols)
    minimums = raw[:, end:].copy() if row.minimum else None
    return raw[:, :cols].copy(), raw[:, cols:end].copy(), minimums


def _decode_codes(scheme: str, raw: Bytes, cols: int) -> Weights:
    """Groups that are not whole are filled up with zeros, and so are the scales of those beyond."""
    row = CODE_SCHEMES[scheme]
    codes, scales, minimums = fields(scheme, raw, cols)
    group = row.activation_group
    groups = padded(cols, group) // group
    values = np.zeros((raw.shape[0], groups * group), np.int64)
    values[:, :cols] = row.values(codes)

    def spread(halves: Bytes) -> F32:
        floats = halves.view(np.float16).astype(np.float32)
        if not row.group:
            return np.repeat(floats, groups, axis=1)
        return np.pad(floats, ((0, 0), (0, groups - floats.shape[1])))

    one = np.ones((raw.shape[0], groups, 1), np.int64)
    shape = (raw.shape[0], groups, 1, group)
    shift = None if minimums is None else spread(minimums)
    return Weights(values.reshape(shape), spread(scales), one, shift, one)


def decode(scheme: str, raw: Bytes, cols: int) -> Weights:
    """Bytes (rows, row bytes) -> integers and scales."""
    if scheme in CODE_SCHEMES:
        return _decode_codes(scheme, raw, cols)
    rows = raw.shape[0]
    groups = cols // BLOCK_COLS[scheme]
    block = raw.reshape(rows, groups, BLOCK_BYTES[scheme])
    scales = _halves(block, HALF_FIELDS[scheme][0])
    minimums = _halves(block, HALF_FIELDS[scheme][1]) if len(HALF_FIELDS[scheme]) == 2 else None
    one = np.ones((rows, groups, 1), np.int64)

    def nibbles(raw_nibbles: Bytes) -> Ints:
        v = raw_nibbles.astype(np.int64)
        return np.concatenate([v & 15, v >> 4], axis=-1)

    if scheme == "q8_0":
        return Weights(
            block[..., 2:].view(np.int8).astype(np.int64)[:, :, None], scales, one, None, one
        )
    if scheme == "iq4_nl":
        values = np.array(IQ4_NL, np.int64)[nibbles(block[..., -16:])]
        return Weights(values[:, :, None], scales, one, None, one)
    if scheme in ("q4_0", "q4_1"):
        codes = nibbles(block[..., -16:]) - (8 if scheme == "q4_0" else 0)
        return Weights(codes[:, :, None], scales, one, minimums, one)
    if scheme in ("q5_0", "q5_1"):
        codes = nibbles(block[..., -16:]) + 16 * _bits(block[..., -20:-16])
        codes -= 16 if scheme == "q5_0" else 0
        return Weights(codes[:, :, None], scales, one, minimums, one)
    if scheme == "q6_k":
        low = nibbles(block[..., :128].reshape(rows, groups, 2, 64))
        high = block[..., 128:192].reshape(rows, groups, 2, 1, 32).astype(np.int64)
        high = (high >> np.array([0, 2, 4, 6])[:, None]) & 3
        codes = low + 16 * high.reshape(low.shape) - 32
        sub = block[..., 192:208].view(np.int8).astype(np.int64)
        return Weights(codes.reshape(rows, groups, 16, 16), scales, sub, None, one)
    assert minimums is not None
    sub, sub_minimums = _six_bit_pairs(block[..., 4:16])
    codes = nibbles(block[..., -128:].reshape(rows, groups, 4, 32)).reshape(rows, groups, 8, 32)
    if scheme == "q5_k":
        fifth = _bits(block[..., 16:48, None])  # (rows, groups, column, sub-block)
        codes = codes + 16 * np.swapaxes(fifth, -1, -2)
    return Weights(codes, scales, sub, -minimums, sub_minimums)


def quantize(x: F32, group: int) -> tuple[NDArray[np.int8], F32]:
    """Activation codes (T, padded) and scales (T, padded / group); all values finite."""
    filled = np.pad(x, ((0, 0), (0, padded(x.shape[1], group) - x.shape[1])))
    grouped = filled.reshape(x.shape[0], -1, group)
    absmax = np.abs(grouped).max(axis=-1)
    zero = absmax < np.float32(1e-30)
    safe = np.where(zero, np.float32(1), absmax)
    inverse = np.float32(127) / safe
    codes = np.rint(grouped * inverse[..., None])
    codes[zero] = 0
    scales = np.where(zero, np.float32(0), absmax / np.float32(127))
    return codes.reshape(filled.shape).astype(np.int8), scales.astype(np.float32)


def integer_linear(w: Weights, codes: NDArray[np.int8], scales: F32) -> F32:
    """Rounded activations times the groups of ``w``, in ascending order."""
    rows, groups, subs, sub_cols = w.codes.shape
    a = codes.reshape(codes.shape[0], groups, subs, sub_cols).astype(np.int64)
    acc = np.zeros((codes.shape[0], rows), np.float32)
    for g in range(groups):
        sums = np.einsum("tsk,rsk->trs", a[:, g], w.codes[:, g])
        isum = (sums * w.sub_scales[:, g]).sum(axis=-1)
        assert np.abs(isum).max() < 2**31
        p = scales[:, g, None] * w.scales[:, g]
        acc = fma32(p, isum.astype(np.float32), acc)
        if w.minimums is not None:
            asum = (a[:, g].sum(axis=-1)[:, None, :] * w.sub_minimums[:, g]).sum(axis=-1)
            m = w.minimums[:, g] * scales[:, g, None]
            acc = fma32(m, asum.astype(np.float32), acc)
    return acc


def elements(scheme: str, raw: Bytes) -> F32:
    """Checkpoint bytes of a float scheme -> float32 (rows, cols)."""
    if scheme == "f32":
        return raw.view(np.float32)
    if scheme == "f16":
        return raw.view(np.float16).astype(np.float32)
    return (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def float_linear(w: F32, x: F32, run: int = FLOAT_RUN) -> F32:
    """Chains of ``run`` columns, whose sums are added in ascending order."""
    total = np.zeros((x.shape[0], w.shape[0]), np.float32)
    for first in range(0, x.shape[1], run):
        chain = np.zeros_like(total)
        for k in range(first, min(first + run, x.shape[1])):
            chain = fma32(w[None, :, k], x[:, None, k], chain)
        total = chain if first == 0 else total + chain
    return total


def linear(scheme: str, raw: Bytes, x: F32, bias: F32 | None = None, add: F32 | None = None) -> F32:
    """Activations (T, cols) times the matrix of bytes (rows, row bytes)."""
    if scheme in FLOAT_SCHEMES:
        acc = float_linear(elements(scheme, raw), x)
    else:
        acc = integer_linear(
            decode(scheme, raw, x.shape[1]), *quantize(x, activation_group(scheme))
        )
    if bias is not None:
        acc = acc + bias
    return acc if add is None else acc + add


def random_rows(
    scheme: str, rows: int, cols: int, rng: np.random.Generator, scale: float = 0.02
) -> Bytes:
    """Bytes (rows, row bytes): random codes, finite fp16 scales of both signs."""
    if scheme in FLOAT_SCHEMES:
        values = (rng.standard_normal((rows, cols)) * scale).astype(np.float32)
        if scheme == "f32":
            return values.view(np.uint8)
        if scheme == "f16":
            return values.astype(np.float16).view(np.uint8)
        return (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    if scheme in CODE_SCHEMES:
        codes = rng.integers(0, 1 << CODE_SCHEMES[scheme].bits, (rows, cols), np.uint8)
        halves = (row_bytes(scheme, cols) - cols) // 2
        scales = (rng.standard_normal((rows, halves)) * scale).astype(np.float16)
        return np.concatenate([codes, scales.view(np.uint8)], axis=1)
    size = BLOCK_BYTES[scheme]
    raw = rng.integers(0, 256, (rows, cols // BLOCK_COLS[scheme], size), np.uint8)
    for offset in HALF_FIELDS[scheme]:
        halves_of_block = (rng.standard_normal(raw.shape[:2]) * scale).astype(np.float16)
        raw[..., offset : offset + 2] = halves_of_block[..., None].view(np.uint8)
    return raw.reshape(rows, -1)


def odd_cols(scheme: str) -> int:
    """A width that ends in the middle of every pairing a kernel might use, and of a group."""
    if scheme in CODE_SCHEMES:
        return {16: 53, 32: 83, 64: 229, 128: 345}[activation_group(scheme)]
    return {1: 37, 32: 96, 256: 768}[BLOCK_COLS[scheme]]


def heavy_tailed(rng: np.random.Generator, shape: tuple[int, int]) -> F32:
    """Activations of very different sizes, one of them 10,000."""
    x = rng.standard_cauchy(shape).astype(np.float32)
    x[0, 0] = 1e4
    return x


def pack(matrix: _native.Matrix, scheme: str, first_row: int, raw: Bytes) -> None:
    """Bytes (n, row bytes) of this module into rows first_row.. of a matrix."""
    if scheme not in CODE_SCHEMES:
        assert matrix.pack(first_row, raw.reshape(-1)) == raw.shape[0]
        return
    codes, scales, minimums = fields(scheme, raw, matrix.cols)
    halves = None if minimums is None else minimums.view(np.uint16)
    matrix.pack_codes(first_row, codes, scales.view(np.uint16), halves)


def matrix(scheme: str, raw: Bytes, cols: int) -> _native.Matrix:
    """The packed matrix of bytes (rows, row bytes)."""
    packed = _native.Matrix(scheme, raw.shape[0], cols)
    pack(packed, scheme, 0, raw)
    return packed


def bits(x: Any) -> NDArray[np.uint32]:
    """Float32 bit patterns, every NaN as one pattern (its payload is no part of the numerics)."""
    array = np.ascontiguousarray(x, np.float32)
    return np.where(np.isnan(array), np.uint32(0x7FC00000), array.view(np.uint32))
