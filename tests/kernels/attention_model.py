"""A KV cache of one sequence for the attention kernels, and attention written out in NumPy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .float32_model import Doubles, Floats, flat, fma32, native, tree_sum

BLOCK = 16  # tokens in a KV block
SPAN = 1024  # tokens after which the online softmax starts anew
TYPES = {"fp32": np.float32, "fp16": np.float16, "int8": np.int8, "int4": np.int8}
"""Of the numbers in a plane; those of int4 once unpacked."""
BITS = {"fp32": 32, "fp16": 16, "int8": 8, "int4": 4}
LARGEST = {"int8": 127, "int4": 7}
"""Of the codes."""


class Stored(NamedTuple):
    """Keys and values (tokens, head_dim) of one kv head as a cache holds them.

    With scales (tokens,) they are codes.
    """

    k: Floats
    v: Floats
    k_scales: Floats | None = None
    v_scales: Floats | None = None

    def until(self, end: int) -> Stored:
        """The tokens before ``end``."""
        return self.at(np.s_[:end])

    def at(self, tokens: slice | NDArray[np.int64]) -> Stored:
        """Some tokens, in that order."""
        return Stored(*(None if x is None else x[tokens] for x in self))

    def doubles(self) -> tuple[Doubles, Doubles]:
        """The numbers they stand for."""
        k, v = self.k.astype(np.float64), self.v.astype(np.float64)
        if self.k_scales is not None:
            k = k * self.k_scales[:, None]
        if self.v_scales is not None:
            v = v * self.v_scales[:, None]
        return k, v


def sides(kv_type: str) -> tuple[str, str]:
    """The types of keys and of values: ``k8v4`` is int8 and int4."""
    names = {"16": "fp16", "8": "int8", "4": "int4"}
    if kv_type.startswith("k"):
        keys, values = kv_type.removeprefix("k").split("v")
        return names[keys], names[values]
    return kv_type, kv_type


def codes_and_scales(x: Floats, largest: int) -> tuple[NDArray[np.int8], Floats]:
    """Codes of (..., head_dim) and the scales (...): absmax / largest of each head's vector."""
    absmax = np.abs(x).max(axis=-1, keepdims=True)  # NaN if there is one
    scales = absmax / np.float32(largest)
    usable = np.isfinite(absmax) & (absmax >= np.float32(1e-30))
    with np.errstate(all="ignore"):
        codes = np.rint(x * (np.float32(largest) / absmax))
    codes = np.where(usable, codes, 0).astype(np.int8)
    return codes, np.where(absmax < np.float32(1e-30), np.float32(0), scales)[..., 0]


def rounded(x: Floats, side: str) -> tuple[NDArray[np.generic], Floats | None]:
    """What a cache makes of (..., head_dim): numbers of the side's type, and scales of codes."""
    if side in LARGEST:
        return codes_and_scales(x, LARGEST[side])
    with np.errstate(over="ignore"):
        return x.astype(TYPES[side]), None


def _nibbles(x: NDArray[np.unsignedinteger]) -> NDArray[np.int8]:
    """The low four bits of each, a two's complement."""
    return ((x & 15).astype(np.int8) ^ 8) - np.int8(8)


def _unpacked_keys(plane: NDArray[np.uint8]) -> NDArray[np.int8]:
    """(..., dims / 2, token) bytes, dim 2j in the low half and 2j + 1 in the high one."""
    pairs = np.stack([_nibbles(plane), _nibbles(plane >> 4)], axis=-2)
    return pairs.reshape(*plane.shape[:-2], -1, BLOCK)


def _unpacked_values(plane: NDArray[np.uint8]) -> NDArray[np.int8]:
    """(..., token, dims / 2) bytes: of 16 dims two words, one of the even dims, one of the odd."""
    words = np.ascontiguousarray(plane).view("<u4")[..., None]  # (..., token, words, 1)
    codes = _nibbles(words >> (4 * np.arange(8, dtype=np.uint32)))
    pairs = codes.reshape(*plane.shape[:-1], -1, 2, 8).swapaxes(-1, -2)
    return pairs.reshape(*plane.shape[:-1], -1)


@dataclass
class Cache:
    """Keys and values (tokens, kv_heads, head_dim) of a sequence, written through the kernels.

    The pool is filled with 0xFF bytes first: NaN, and NaN as the scale of codes. ``block_table``
    is a shuffled choice of physical blocks.
    """

    isa: str
    kv_type: str
    k: Floats
    v: Floats
    layers: int = 2
    layer: int = 1
    seed: int = 0
    block_table: NDArray[np.int32] = field(init=False)
    pool: NDArray[np.uint8] = field(init=False)

    def __post_init__(self) -> None:
        tokens, self.kv_heads, self.head_dim = self.k.shape
        needed = -(-tokens // BLOCK)
        rng = np.random.default_rng(self.seed)
        self.block_table = rng.permutation(needed + 3)[:needed].astype(np.int32)
        self.sides = sides(self.kv_type)
        per_block = self.layers * self.kv_heads * self.head_bytes
        self.pool = np.full((needed + 3) * per_block, 0xFF, np.uint8)
        self.kernels = native.TestPool(
            self.isa, self.kv_type, self.layers, self.kv_heads, self.head_dim, self.pool
        )
        assert self.kernels.blocks == needed + 3

    def store(self, begin: int = 0, end: int | None = None) -> Cache:
        """Stores tokens begin..end; returns self."""
        positions = np.arange(begin, len(self.k) if end is None else end)
        blocks = np.ascontiguousarray(self.block_table[positions // BLOCK])
        slots = (positions % BLOCK).astype(np.int32)
        k, v = self.k[positions], self.v[positions]
        self.kernels.store(self.layer, blocks, slots, k, v)
        return self

    @property
    def _part_bytes(self) -> list[int]:
        """Of a block, layer and head: keys, values, the scales of keys and those of values."""
        planes = [self.head_dim * BLOCK * BITS[side] // 8 for side in self.sides]
        return planes + [4 * BLOCK if side in LARGEST else 0 for side in self.sides]

    @property
    def head_bytes(self) -> int:
        """Keys, values and their scales of a block, layer and head."""
        return sum(self._part_bytes)

    def _parts(self) -> list[NDArray[np.uint8]]:
        """As ``_part_bytes``, each [block, layer, head, bytes]."""
        heads = self.pool.reshape(-1, self.layers, self.kv_heads, self.head_bytes)
        parts = np.split(heads, np.cumsum(self._part_bytes)[:-1], axis=-1)
        return [np.ascontiguousarray(part) for part in parts]

    def planes(self) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
        """All keys [block, layer, head, dim, token] and values [..., token, dim]."""
        keys, values = self._parts()[:2]
        lead = keys.shape[:-1]
        key_side, value_side = self.sides
        return (
            _unpacked_keys(keys.reshape(*lead, -1, BLOCK))
            if key_side == "int4"
            else keys.view(TYPES[key_side]).reshape(*lead, self.head_dim, BLOCK),
            _unpacked_values(values.reshape(*lead, BLOCK, -1))
            if value_side == "int4"
            else values.view(TYPES[value_side]).reshape(*lead, BLOCK, self.head_dim),
        )

    def scales(self) -> tuple[Floats | None, Floats | None]:
        """Scales [block, layer, head, token] of the keys' codes and of the values'."""
        keys, values = (part.view(np.float32) if part.size else None for part in self._parts()[2:])
        return keys, values

    def attend(
        self,
        q: Floats,
        position: int,
        *,
        scale: float = 0.125,
        softcap: float = 0.0,
        window: int = 0,
        tiles: list[int] | None = None,
        parts: int = 0,
    ) -> Floats:
        """Output (tokens, heads, head_dim) of queries at position, position + 1, ..."""
        result: Floats = self.kernels.attend(
            self.layer,
            self.block_table,
            position,
            q,
            scale,
            softcap,
            window,
            tiles or [16] * (len(q) // 16) + ([len(q) % 16] if len(q) % 16 else []),
            parts,
        )
        return result

    def stored(self, head: int = 0) -> Stored:
        """What a kv head's keys and values become in the cache, by NumPy alone."""
        (k, k_scales), (v, v_scales) = (
            rounded(np.ascontiguousarray(x[:, head]), side)
            for x, side in zip((self.k, self.v), self.sides, strict=True)
        )
        return Stored(k.astype(np.float32), v.astype(np.float32), k_scales, v_scales)


def exact_order(
    q: Floats,
    kv: Stored,
    first: int,
    *,
    scale: float = 0.125,
    softcap: float = 0.0,
    span_tokens: int = SPAN,
) -> Floats:
    """One position's attention to tokens first.. of kv, in the contract's own arithmetic.

    q: (queries, head_dim), all of one kv head; result like q. With another ``span_tokens`` it is
    not the contract's.
    """
    n, head_dim = q.shape
    k, v, k_scales, v_scales = kv
    tokens = len(k)
    total: tuple[Floats, Floats, Floats] | None = None
    for span in range(first // span_tokens, (tokens - 1) // span_tokens + 1):
        m = np.full(n, -np.inf, np.float32)
        total_l, acc = np.zeros(n, np.float32), np.zeros((n, head_dim), np.float32)
        begin = max(first // BLOCK * BLOCK, span * span_tokens)
        for base in range(begin, min(tokens, (span + 1) * span_tokens), BLOCK):
            low, high = max(first - base, 0), min(tokens - base, BLOCK)
            s = np.zeros((n, high - low), np.float32)
            for d in range(head_dim):
                s = fma32(q[:, d : d + 1], k[base + low : base + high, d], s)
            if k_scales is not None:
                s = s * k_scales[base + low : base + high]
            s = s * np.float32(scale)
            if softcap:
                s = np.float32(softcap) * flat(native.tanh, s / np.float32(softcap))
            m_new = np.maximum(m, s.max(axis=1))
            c = flat(native.exp, m - m_new)
            p = np.zeros((n, BLOCK), np.float32)
            p[:, low:high] = flat(native.exp, s - m_new[:, None])
            total_l = fma32(total_l, c, tree_sum(p))
            if v_scales is not None:
                p[:, low:high] *= v_scales[base + low : base + high]
            acc = acc * c[:, None]
            for t in range(low, high):
                acc = fma32(p[:, t : t + 1], v[base + t], acc)
            m = m_new
        if total is None:
            total = (m, total_l, acc)
            continue
        m_old, l_old, acc_old = total
        m_new = np.maximum(m_old, m)
        c_old, c = flat(native.exp, m_old - m_new), flat(native.exp, m - m_new)
        total = (
            m_new,
            fma32(l_old, c_old, total_l * c),
            fma32(acc_old, c_old[:, None], acc * c[:, None]),
        )
    assert total is not None
    result: Floats = total[2] / total[1][:, None]
    return result


def truth(
    q: Floats, kv: Stored, first: int, *, scale: float = 0.125, softcap: float = 0.0
) -> Doubles:
    """The same attention in float64."""
    k, v = kv.doubles()
    s = q.astype(np.float64) @ k[first:].T * scale
    if softcap:
        s = softcap * np.tanh(s / softcap)
    p = np.exp(s - s.max(axis=1, keepdims=True))
    result: Doubles = p @ v[first:] / p.sum(axis=1, keepdims=True)
    return result


def plain(
    q: Floats, kv: Stored, first: int, *, scale: float = 0.125, softcap: float = 0.0
) -> Floats:
    """The same attention as a plain float32 program would loop: the yardstick of errors."""
    keys, values = (x[first:].astype(np.float32) for x in kv.doubles())
    s = np.zeros((len(q), len(keys)), np.float32)
    for d in range(q.shape[1]):
        s = s + q[:, d : d + 1] * keys[:, d]
    s = s * np.float32(scale)
    if softcap:
        s = np.float32(softcap) * np.tanh(s / np.float32(softcap))
    p = np.exp(s - s.max(axis=1, keepdims=True))
    total, acc = np.zeros((len(q), 1), np.float32), np.zeros(q.shape, np.float32)
    for t in range(len(keys)):
        total = total + p[:, t : t + 1]
        acc = acc + p[:, t : t + 1] * values[t]
    result: Floats = acc / total
    return result
