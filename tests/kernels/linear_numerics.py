"""The documented numerics of the linear kernels in NumPy, exact and independent of the C++ code.

``csrc/kernels/linear/linear.h`` states them; nothing here knows the packed layout.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
Ints = NDArray[np.int64]

BLOCK_SCHEMES = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_k", "q5_k", "q6_k")
FLOAT_SCHEMES = ("f32", "f16", "bf16")
SCHEMES = FLOAT_SCHEMES + BLOCK_SCHEMES
BLOCK_COLS = dict.fromkeys(FLOAT_SCHEMES, 1) | dict.fromkeys(BLOCK_SCHEMES[:5], 32)
BLOCK_COLS |= dict.fromkeys(BLOCK_SCHEMES[5:], 256)
BLOCK_BYTES = dict(zip(SCHEMES, (4, 2, 2, 18, 20, 22, 24, 34, 144, 176, 210), strict=True))
# Byte offsets of a block's fp16 fields.
HALF_FIELDS = {
    "q4_0": (0,),
    "q4_1": (0, 2),
    "q5_0": (0,),
    "q5_1": (0, 2),
    "q8_0": (0,),
    "q4_k": (0, 2),
    "q5_k": (0, 2),
    "q6_k": (208,),
}


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
    """A matrix as integers and scales: (rows, groups, ...) arrays.

    ``codes`` (rows, groups, subs, columns of a sub-block), zero point removed. ``sub_scales`` and
    ``sub_minimums`` (rows, groups, subs). ``minimums`` already has the sign it is added with.
    """

    codes: Ints
    scales: F32
    sub_scales: Ints
    minimums: F32 | None
    sub_minimums: Ints


def _halves(raw: NDArray[np.uint8], offset: int) -> F32:
    field = np.ascontiguousarray(raw[..., offset : offset + 2]).view(np.float16)
    return field[..., 0].astype(np.float32)


def _six_bit_pairs(raw: NDArray[np.uint8]) -> tuple[Ints, Ints]:
    """12 bytes -> eight scales and eight minimums of 6 bits (q4_k, q5_k)."""
    b = raw.astype(np.int64)
    low, middle, mixed = b[..., 0:4], b[..., 4:8], b[..., 8:12]
    scales = np.concatenate([low & 63, (mixed & 15) + 16 * (low >> 6)], axis=-1)
    minimums = np.concatenate([middle & 63, (mixed >> 4) + 16 * (middle >> 6)], axis=-1)
    return scales, minimums


def _bits(raw: NDArray[np.uint8]) -> Ints:
    return np.unpackbits(raw, axis=-1, bitorder="little").astype(np.int64)


def decode(scheme: str, raw: NDArray[np.uint8], cols: int) -> Weights:
    """Checkpoint bytes (rows, row bytes) -> integers and scales."""
    rows = raw.shape[0]
    groups = cols // BLOCK_COLS[scheme]
    block = raw.reshape(rows, groups, BLOCK_BYTES[scheme])
    scales = _halves(block, HALF_FIELDS[scheme][0])
    minimums = _halves(block, HALF_FIELDS[scheme][1]) if len(HALF_FIELDS[scheme]) == 2 else None
    one = np.ones((rows, groups, 1), np.int64)

    def nibbles(raw_nibbles: NDArray[np.uint8]) -> Ints:
        v = raw_nibbles.astype(np.int64)
        return np.concatenate([v & 15, v >> 4], axis=-1)

    if scheme == "q8_0":
        return Weights(
            block[..., 2:].view(np.int8).astype(np.int64)[:, :, None], scales, one, None, one
        )
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
    """Activation codes (T, cols) and scales (T, cols / group); all values finite."""
    grouped = x.reshape(x.shape[0], -1, group)
    absmax = np.abs(grouped).max(axis=-1)
    zero = absmax < np.float32(1e-30)
    safe = np.where(zero, np.float32(1), absmax)
    inverse = np.float32(127) / safe
    codes = np.rint(grouped * inverse[..., None])
    codes[zero] = 0
    scales = np.where(zero, np.float32(0), absmax / np.float32(127))
    return codes.reshape(x.shape).astype(np.int8), scales.astype(np.float32)


def _integer_linear(scheme: str, raw: NDArray[np.uint8], x: F32) -> F32:
    w = decode(scheme, raw, x.shape[1])
    rows, groups, subs, sub_cols = w.codes.shape
    codes, scales = quantize(x, BLOCK_COLS[scheme])
    a = codes.reshape(x.shape[0], groups, subs, sub_cols).astype(np.int64)
    acc = np.zeros((x.shape[0], rows), np.float32)
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


def elements(scheme: str, raw: NDArray[np.uint8]) -> F32:
    """Checkpoint bytes of a float scheme -> float32 (rows, cols)."""
    if scheme == "f32":
        return raw.view(np.float32)
    if scheme == "f16":
        return raw.view(np.float16).astype(np.float32)
    return (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def linear(
    scheme: str, raw: NDArray[np.uint8], x: F32, bias: F32 | None = None, add: F32 | None = None
) -> F32:
    """Activations (T, cols) times the matrix of checkpoint bytes (rows, row bytes)."""
    if scheme in FLOAT_SCHEMES:
        w = elements(scheme, raw)
        acc = np.zeros((x.shape[0], w.shape[0]), np.float32)
        for k in range(x.shape[1]):
            acc = fma32(w[None, :, k], x[:, None, k], acc)
    else:
        acc = _integer_linear(scheme, raw, x)
    if bias is not None:
        acc = acc + bias
    return acc if add is None else acc + add


def random_blocks(
    scheme: str, rows: int, cols: int, rng: np.random.Generator, scale: float = 0.02
) -> NDArray[np.uint8]:
    """Checkpoint bytes (rows, row bytes): random codes, finite fp16 scales of both signs."""
    if scheme in FLOAT_SCHEMES:
        values = (rng.standard_normal((rows, cols)) * scale).astype(np.float32)
        if scheme == "f32":
            return values.view(np.uint8)
        if scheme == "f16":
            return values.astype(np.float16).view(np.uint8)
        return (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    size = BLOCK_BYTES[scheme]
    raw = rng.integers(0, 256, (rows, cols // BLOCK_COLS[scheme], size), np.uint8)
    for offset in HALF_FIELDS[scheme]:
        halves = (rng.standard_normal(raw.shape[:2]) * scale).astype(np.float16)
        raw[..., offset : offset + 2] = halves[..., None].view(np.uint8)
    return raw.reshape(rows, -1)


def bits(x: Any) -> NDArray[np.uint32]:
    """Float32 bit patterns, every NaN as one pattern (its payload is no part of the numerics)."""
    array = np.ascontiguousarray(x, np.float32)
    return np.where(np.isnan(array), np.uint32(0x7FC00000), array.view(np.uint32))
