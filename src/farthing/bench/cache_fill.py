"""Fills a KV cache with stored values, so that a long context need not be computed first.

Memory that nobody has written is one page of zeros for the whole cache: reading that is no
measurement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from farthing.bench.random_weights import float_matrix
from farthing.config import Rope
from farthing.program.builder import ProgramBuilder
from farthing.program.native import KvCache, NativeExecutor
from farthing.program.ops import Attention, Program, WeightSlot
from farthing.program.step import BLOCK_TOKENS, SequenceRows, step_batch
from farthing.program.weights import NativeWeight

TABLE_ROWS = 64
"""Tokens there are."""


@dataclass(frozen=True, slots=True)
class Heads:
    """The shape of a layer's attention."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    rope: Rope | None = None
    window: int | None = None
    softcap: float | None = None

    @classmethod
    def of(cls, op: Attention) -> Heads:
        """That of ``op``."""
        return cls(op.num_heads, op.num_kv_heads, op.head_dim, op.rope, op.window, op.softcap)


def attention_only(layers: Sequence[Heads]) -> Program:
    """A program that embeds q, k and v and does nothing but attention on them, layer by layer.

    Its one weight is the table ``qkv`` (64, width of q, k and v).
    """
    builder = ProgramBuilder()
    first = layers[0]
    width = (first.num_heads + 2 * first.num_kv_heads) * first.head_dim
    qkv = out = builder.embed(WeightSlot("qkv", (TABLE_ROWS, width)))
    for layer, heads in enumerate(layers):
        out = builder.attention(
            qkv,
            layer=layer,
            num_heads=heads.num_heads,
            num_kv_heads=heads.num_kv_heads,
            head_dim=heads.head_dim,
            rope=heads.rope,
            window=heads.window,
            softcap=heads.softcap,
        )
    return builder.finish(builder.logit_rows(out))


def random_table(program: Program, seed: int = 0) -> dict[str, NativeWeight]:
    """The weight of :func:`attention_only`'s program: normal numbers."""
    (slot,) = program.weights
    values = np.random.default_rng(seed).standard_normal(slot.shape, np.float32)
    return {slot.name: float_matrix(values)}


def fill_cache(program: Program, kv: KvCache, num_threads: int) -> None:
    """Stores keys and values of every layer of ``program`` in every block of ``kv``.

    Each block is the first of a sequence of its own, so that attention is as good as free.
    """
    layers = [Heads.of(op) for op in program.ops if isinstance(op, Attention)]
    if not layers:
        return
    filler = attention_only(layers)
    rows = 32 * BLOCK_TOKENS
    executor = NativeExecutor(filler, random_table(filler), num_threads=num_threads, max_rows=rows)
    for first in range(0, kv.num_blocks, rows // BLOCK_TOKENS):
        blocks = range(first, min(first + rows // BLOCK_TOKENS, kv.num_blocks))
        sequences = [
            SequenceRows(
                [(block * 7 + i * 5) % TABLE_ROWS for i in range(BLOCK_TOKENS)], 0, [block]
            )
            for block in blocks
        ]
        executor.run(step_batch(sequences), kv)
