"""What a pass has to read and to multiply, counted from its program.

Counted: packed weights of every matrix product, once a pass; keys and values that some row of the
pass sees, once for each sequence; the products of both. Not counted: norms, gates, the rows of the
embedding table, and what intermediate values move: they are what a perfect pass would hide.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np

from farthing.program.native import KvCache
from farthing.program.ops import Attention, Linear, Moe, Program, Rows
from farthing.program.step import BLOCK_TOKENS, StepBatch
from farthing.program.weights import NativeWeight


@dataclass(frozen=True, slots=True)
class Work:
    """Bytes that come from memory and multiply-adds (MACs), of one or of several passes.

    With more than one row a mixture of experts reads as many experts as rows happen to choose;
    ``weight_bytes`` then has the expected number for choices that are independent and even.
    """

    weight_bytes: int = 0
    kv_bytes: int = 0
    integer_macs: int = 0  # of int8 activations
    float_macs: int = 0

    def __add__(self, other: Work) -> Work:
        return Work(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    @property
    def total_bytes(self) -> int:
        """Of weights and cache."""
        return self.weight_bytes + self.kv_bytes

    @property
    def macs(self) -> int:
        """Of both kinds."""
        return self.integer_macs + self.float_macs


def linear_work(program: Program, weights: Mapping[str, NativeWeight], batch: StepBatch) -> Work:
    """The matrix products of a pass, experts and language-model head included."""
    rows = _row_counts(batch)
    total = Work()
    for op in program.ops:
        if isinstance(op, Linear):
            for name in op.weights:
                total += _product(weights[name], rows[op.x.rows])
        elif isinstance(op, Moe):
            total += _experts(op, weights, rows[op.x.rows])
    return total


def attention_work(program: Program, kv: KvCache, batch: StepBatch) -> Work:
    """Scores and weighted values of a pass, and the cache they read."""
    layers = max(program.num_layers, 1)
    token_bytes = kv.block_bytes // BLOCK_TOKENS // layers
    total = Work()
    for op in program.ops:
        if not isinstance(op, Attention):
            continue
        for start, stop in zip(batch.row_offsets, batch.row_offsets[1:], strict=False):
            positions = batch.positions[start:stop].astype(np.int64)
            seen = positions + 1 if op.window is None else np.minimum(positions + 1, op.window)
            first = positions[0] + 1 - seen[0]
            total += Work(
                kv_bytes=int(positions[-1] + 1 - first) * token_bytes,
                float_macs=2 * op.num_heads * op.head_dim * int(seen.sum()),
            )
    return total


def pass_work(
    program: Program, weights: Mapping[str, NativeWeight], kv: KvCache, batch: StepBatch
) -> Work:
    """All that is counted of a pass."""
    return linear_work(program, weights, batch) + attention_work(program, kv, batch)


def weight_bytes_by_scheme(weights: Mapping[str, NativeWeight]) -> dict[str, int]:
    """Packed bytes of the matrices of each scheme, most first."""
    sizes: dict[str, int] = {}
    for weight in weights.values():
        if not isinstance(weight, np.ndarray):
            sizes[weight.scheme] = sizes.get(weight.scheme, 0) + weight.nbytes
    return dict(sorted(sizes.items(), key=lambda item: -item[1]))


def _row_counts(batch: StepBatch) -> dict[Rows, int]:
    return {
        Rows.TOKENS: len(batch.tokens),
        Rows.LOGITS: len(batch.logit_rows) + len(batch.argmax_rows),
        Rows.HIDDEN: len(batch.hidden_rows),
    }


def _product(weight: NativeWeight, rows: int) -> Work:
    assert not isinstance(weight, np.ndarray), "matrices are packed"
    if rows == 0:
        return Work()
    macs = rows * weight.rows * weight.cols
    rounded = weight.activation_group > 0
    return Work(weight.nbytes, 0, macs if rounded else 0, 0 if rounded else macs)


def _experts(op: Moe, weights: Mapping[str, NativeWeight], rows: int) -> Work:
    router = _product(weights[op.router], rows)
    if rows == 0:
        return router
    count = len(op.gate)
    chosen = rows * op.top_k
    touched = count * (1 - (1 - op.top_k / count) ** rows)  # exactly top_k for one row
    one = [_product(weights[stack[0]], 1) for stack in (op.gate, op.up, op.down)]
    return router + Work(
        weight_bytes=round(touched * sum(w.weight_bytes for w in one)),
        integer_macs=chosen * sum(w.integer_macs for w in one),
        float_macs=chosen * sum(w.float_macs for w in one),
    )
