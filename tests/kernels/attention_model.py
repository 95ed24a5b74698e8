"""A KV cache of one sequence for the attention kernels, and attention written out in NumPy."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from .float32_model import Doubles, Floats, flat, fma32, native, tree_sum

BLOCK = 16  # tokens in a KV block
SPAN = 1024  # tokens after which the online softmax starts anew


@dataclass
class Cache:
    """Keys and values (tokens, kv_heads, head_dim) of a sequence, written through the kernels.

    The pool is filled with 0xFF bytes first: NaN in both KV types. ``block_table`` is a shuffled
    choice of physical blocks.
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
        size = {"f16": 2, "f32": 4}[self.kv_type]
        per_block = 2 * self.layers * self.kv_heads * self.head_dim * BLOCK * size
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

    def planes(self) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
        """Views of all keys [block, layer, head, dim, token] and values [..., token, dim]."""
        dtype = {"f16": np.float16, "f32": np.float32}[self.kv_type]
        shape = (-1, self.layers, self.kv_heads, 2, self.head_dim * BLOCK)
        both = self.pool.view(dtype).reshape(shape)
        keys = both[:, :, :, 0].reshape(*both.shape[:3], self.head_dim, BLOCK)
        values = both[:, :, :, 1].reshape(*both.shape[:3], BLOCK, self.head_dim)
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
        )
        return result

    def rounded(self) -> tuple[Floats, Floats]:
        """The keys and values as the cache holds them."""
        dtype = {"f16": np.float16, "f32": np.float32}[self.kv_type]
        with np.errstate(over="ignore"):
            return (
                self.k.astype(dtype).astype(np.float32),
                self.v.astype(dtype).astype(np.float32),
            )


def exact_order(
    q: Floats,
    k: Floats,
    v: Floats,
    first: int,
    *,
    scale: float = 0.125,
    softcap: float = 0.0,
) -> Floats:
    """One position's attention to tokens first.. of k and v, in the contract's own arithmetic.

    q: (queries, head_dim), all of one kv head; k, v: (tokens, head_dim); result like q.
    """
    n, head_dim = q.shape
    tokens = len(k)
    total: tuple[Floats, Floats, Floats] | None = None
    for span in range(first // SPAN, (tokens - 1) // SPAN + 1):
        m = np.full(n, -np.inf, np.float32)
        total_l, acc = np.zeros(n, np.float32), np.zeros((n, head_dim), np.float32)
        begin = max(first // BLOCK * BLOCK, span * SPAN)
        for base in range(begin, min(tokens, (span + 1) * SPAN), BLOCK):
            low, high = max(first - base, 0), min(tokens - base, BLOCK)
            s = np.zeros((n, high - low), np.float32)
            for d in range(head_dim):
                s = fma32(q[:, d : d + 1], k[base + low : base + high, d], s)
            s = s * np.float32(scale)
            if softcap:
                s = np.float32(softcap) * flat(native.tanh, s / np.float32(softcap))
            m_new = np.maximum(m, s.max(axis=1))
            c = flat(native.exp, m - m_new)
            p = np.zeros((n, BLOCK), np.float32)
            p[:, low:high] = flat(native.exp, s - m_new[:, None])
            total_l = fma32(total_l, c, tree_sum(p))
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
    q: Floats, k: Floats, v: Floats, first: int, *, scale: float = 0.125, softcap: float = 0.0
) -> Doubles:
    """The same attention in float64."""
    s = q.astype(np.float64) @ k[first:].astype(np.float64).T * scale
    if softcap:
        s = softcap * np.tanh(s / softcap)
    p = np.exp(s - s.max(axis=1, keepdims=True))
    result: Doubles = p @ v[first:].astype(np.float64) / p.sum(axis=1, keepdims=True)
    return result


def plain(
    q: Floats, k: Floats, v: Floats, first: int, *, scale: float = 0.125, softcap: float = 0.0
) -> Floats:
    """The same attention as a plain float32 program would loop: the yardstick of errors."""
    keys, values = k[first:], v[first:]
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
