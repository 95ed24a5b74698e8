"""Matrix products and attention alone, played as programs that have nothing else.

What serving runs is what is timed: the same player, tiles and barriers, instruction by instruction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from farthing.bench.cache_fill import (
    TABLE_ROWS,
    Heads,
    attention_only,
    fill_cache,
    random_table,
)
from farthing.bench.limits import beyond_cache_bytes
from farthing.bench.memory import require_memory
from farthing.bench.random_weights import (
    RandomMatrices,
    float_matrix,
    packed_bytes,
    served_scheme,
)
from farthing.bench.rounds import Case
from farthing.bench.steps import multiplies
from farthing.program.builder import ProgramBuilder
from farthing.program.kv_types import KvDtype
from farthing.program.native import (
    InstructionTiming,
    KvCache,
    NativeExecutor,
)
from farthing.program.ops import Program, Value, WeightSlot
from farthing.program.step import BLOCK_TOKENS, SequenceRows, StepBatch, step_batch
from farthing.program.weights import NativeWeight
from farthing.program.work import attention_work, linear_work


@dataclass(frozen=True, slots=True)
class Products:
    """Matrices of one scheme and size, more of them than any cache holds, and a program of them."""

    scheme: str
    rows: int  # outputs
    cols: int  # inputs
    program: Program
    weights: Mapping[str, NativeWeight]

    @property
    def count(self) -> int:
        """How many matrices there are."""
        return len(self.program.weights) - 2  # the table and the norm are not of them


def make_products(scheme: str, rows: int, cols: int, nbytes: int | None = None) -> Products:
    """As many matrices as ``nbytes`` take, by default more than comes from a cache.

    Raises :class:`InvalidParameterError` for a scheme or width that cannot be,
    :class:`InsufficientMemoryError`.
    """
    row = served_scheme(scheme)
    size = packed_bytes(row, rows, cols)
    count = max(-(-(nbytes or beyond_cache_bytes()) // size), 1)
    require_memory(f"{scheme} {cols}→{rows}", {"matrices": count * size})
    matrices = RandomMatrices()
    table, norm = WeightSlot("table", (TABLE_ROWS, cols)), WeightSlot("norm", (cols,))
    slots = [WeightSlot(f"matrix.{i}", (rows, cols)) for i in range(count)]
    builder = ProgramBuilder()
    x = builder.rms_norm(builder.logit_rows(builder.embed(table)), norm, 1e-6)
    out: Value = x
    for slot in slots:
        out = builder.linear(x, slot)
    rng = np.random.default_rng(1)
    weights: dict[str, NativeWeight] = {
        "table": float_matrix(rng.standard_normal(table.shape, np.float32)),
        "norm": np.ones(cols, np.float32),
        **{slot.name: matrices.make(row, rows, cols) for slot in slots},
    }
    return Products(scheme, rows, cols, builder.finish(out), weights)


def product_cases(products: Products, rows: list[int], num_threads: int) -> list[Case]:
    """One product of each matrix with each number of activation rows, one pass a case."""
    executor = NativeExecutor(
        products.program, products.weights, num_threads=num_threads, max_rows=max(rows)
    )
    kv = KvCache(dtype="fp32", num_layers=1, num_kv_heads=1, head_dim=16, num_blocks=max(rows))
    cases = []
    for count in rows:
        batch = step_batch([SequenceRows([i % TABLE_ROWS], 0, [i], logits=1) for i in range(count)])
        cases.append(
            Case(
                f"{products.scheme} {products.cols}→{products.rows}, rows {count}",
                "linear",
                linear_work(products.program, products.weights, batch),
                count,
                _instructions(executor, batch, kv, multiplies),
                {
                    "scheme": products.scheme,
                    "matrix": [products.rows, products.cols],
                    "matrices": products.count,
                    "rows": count,
                },
            )
        )
    return cases


SMALLEST_QWEN = (Heads(num_heads=14, num_kv_heads=2, head_dim=64),) * 24
"""The attention of Qwen2.5 0.5B."""


def attention_cases(
    layers: Sequence[Heads],
    contexts: list[int],
    prompts: list[int],
    num_threads: int,
    kv_cache_dtype: KvDtype,
) -> list[Case]:
    """Attention of all layers: one row at each of ``contexts``, whole prompts of ``prompts``."""
    program = attention_only(layers)
    heads = layers[0]
    longest = max([*(c + 1 for c in contexts), *prompts])
    cached = longest * len(layers) * 2 * heads.num_kv_heads * heads.head_dim * 4  # or less
    require_memory(f"attention over {longest} tokens", {"KV cache": cached})
    kv = KvCache(
        dtype=kv_cache_dtype,
        num_layers=len(layers),
        num_kv_heads=heads.num_kv_heads,
        head_dim=heads.head_dim,
        num_blocks=-(-longest // BLOCK_TOKENS),
    )
    fill_cache(program, kv, num_threads)
    executor = NativeExecutor(
        program, random_table(program), num_threads=num_threads, max_rows=max([1, *prompts])
    )
    batches = [(f"attention, context {c}", c, 1) for c in contexts]
    batches += [(f"attention, prompt of {n}", 0, n) for n in prompts]
    cases = []
    for name, context, rows in batches:
        tokens = [(context + i) % TABLE_ROWS for i in range(rows)]
        batch = step_batch([SequenceRows(tokens, context, range(kv.num_blocks), logits=1)])
        cases.append(
            Case(
                name,
                "attention",
                attention_work(program, kv, batch),
                rows,
                _instructions(executor, batch, kv, _attends),
                {
                    "heads": heads.num_heads,
                    "kv_heads": heads.num_kv_heads,
                    "head_dim": heads.head_dim,
                    "layers": len(layers),
                    "context": context,
                    "rows": rows,
                },
            )
        )
    return cases


def _attends(timing: InstructionTiming) -> bool:
    return timing.name.startswith("attend")


def _instructions(
    executor: NativeExecutor,
    batch: StepBatch,
    kv: KvCache,
    counts: Callable[[InstructionTiming], bool],
) -> Callable[[], float]:
    """Seconds that the instructions chosen by ``counts`` take in a pass."""
    executor.set_profiling(True)

    def run() -> float:
        executor.run(batch, kv)
        return sum(timing.seconds for timing in executor.profile() if counts(timing))

    return run
