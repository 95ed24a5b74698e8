"""A KV cache of one sequence for the attention kernels, and attention written out in NumPy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .float32_model import Doubles, Floats, flat, fma32, native, tree_sum

BLOCK = 16  # tokens in a KV block
SPAN = 1024  # tokens after which the online softmax starts anew
TYPES = {"f16": np.float16, "i8": np.int8, "f32": np.float32}


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
        if self.k_scales is not None and self.v_scales is not None:
            k, v = k * self.k_scales[:, None], v * self.v_scales[:, None]
        return k, v


def codes_and_scales(x: Floats) -> tuple[NDArray[np.int8], Floats]:
    """Codes of (..., head_dim) and the scales (...): absmax / 127 of each head's vector."""
    absmax = np.abs(x).max(axis=-1, keepdims=True)  # NaN if there is one
    scales = absmax / np.float32(127)
    usable = np.isfinite(absmax) & (absmax >= np.float32(1e-30))
    with np.errstate(all="ignore"):
        codes = np.rint(x * (np.float32(127) / absmax))
    codes = np.where(usable, codes, 0).astype(np.int8)
    return codes, np.where(absmax < np.float32(1e-30), np.float32(0), scales)[..., 0]


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
    def head_bytes(self) -> int:
        """Keys, values and their scales of a block, layer and head."""
        scales = 4 * BLOCK if self.kv_type == "i8" else 0
        return 2 * (self.head_dim * BLOCK * np.dtype(TYPES[self.kv_type]).itemsize + scales)

    def _heads(self) -> NDArray[np.uint8]:
        return self.pool.reshape(-1, self.layers, self.kv_heads, self.head_bytes)

    def planes(self) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
        """All keys [block, layer, head, dim, token] and values [..., token, dim]."""
        dtype = np.dtype(TYPES[self.kv_type])
        heads, plane = self._heads(), self.head_dim * BLOCK * dtype.itemsize
        keys, values = (
            np.ascontiguousarray(heads[..., i * plane : (i + 1) * plane]).view(dtype)
            for i in range(2)
        )
        lead = heads.shape[:3]
        return (
            keys.reshape(*lead, self.head_dim, BLOCK),
            values.reshape(*lead, BLOCK, self.head_dim),
        )

    def scales(self) -> Floats:
        """Scales [block, layer, head, (of keys, of values), token] of codes."""
        assert self.kv_type == "i8"
        heads = self._heads()
        scales: Floats = np.ascontiguousarray(heads[..., -8 * BLOCK :]).view(np.float32)
        return scales.reshape(*heads.shape[:3], 2, BLOCK)

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
        k, v = (np.ascontiguousarray(x[:, head]) for x in (self.k, self.v))
        if self.kv_type == "i8":
            (k_codes, k_scales), (v_codes, v_scales) = codes_and_scales(k), codes_and_scales(v)
            codes = (x.astype(np.float32) for x in (k_codes, v_codes))
            return Stored(*codes, k_scales, v_scales)
        dtype = TYPES[self.kv_type]
        with np.errstate(over="ignore"):
            return Stored(*(x.astype(dtype).astype(np.float32) for x in (k, v)))


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
