"""Matrix products as the player cuts them: any rows on any threads give the scalar bits."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from farthing import _native
from farthing.program.builder import ProgramBuilder
from farthing.program.native import KvCache, NativeExecutor, NativeWeight
from farthing.program.ops import WeightSlot
from farthing.program.step import SequenceRows, step_batch
from kernels import linear_numerics as numerics

ISAS = _native.supported_isas()
ROWS = range(1, 41)
# Outputs of two matrices side by side: odd, and with four threads some for each of them.
OUTPUTS = (37, 229)


@cache
def case(scheme: str) -> tuple[list[_native.Matrix], numerics.F32, numerics.F32]:
    """Matrices, activations (40, cols) and their product by the scalar kernel alone."""
    rng = np.random.default_rng(17)
    cols = numerics.odd_cols(scheme)
    matrices = [
        numerics.matrix(scheme, numerics.random_rows(scheme, outputs, cols, rng), cols)
        for outputs in OUTPUTS
    ]
    x = numerics.heavy_tailed(rng, (len(ROWS), cols))
    return matrices, x, np.hstack([_native.linear(m, x, "scalar") for m in matrices])


def executor(scheme: str, isa: str, num_threads: int, *, head: bool) -> NativeExecutor:
    """Plays the product for all rows, or as the end of the head for those that need logits."""
    matrices, x, _ = case(scheme)
    p = ProgramBuilder()
    rows = p.embed(WeightSlot("x", x.shape))
    slots = [WeightSlot(f"matrix.{i}", (m.rows, m.cols)) for i, m in enumerate(matrices)]
    whole = p.linear(p.logit_rows(rows), slots[1]) if head else p.linear(rows, *slots)
    table = numerics.matrix("f32", np.ascontiguousarray(x).view(np.uint8), x.shape[1])
    weights: dict[str, NativeWeight] = {"x": table}
    weights |= {slot.name: m for slot, m in zip(slots, matrices, strict=True)}
    return NativeExecutor(
        p.finish(whole if head else p.logit_rows(whole)),
        weights,
        num_threads=num_threads,
        isa=isa,
        max_rows=40,
        cpus=num_threads,
    )


@pytest.mark.parametrize("num_threads", [1, 2, 3, 4])
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("scheme", numerics.SCHEMES)
def test_any_rows_on_any_threads_give_the_scalar_bits(
    scheme: str, isa: str, num_threads: int
) -> None:
    want = case(scheme)[2]
    assert np.isfinite(want).all()
    assert np.unique(want).size > want.size // 2
    kv = KvCache(dtype="fp32", num_layers=1, num_kv_heads=1, head_dim=16, num_blocks=len(ROWS))
    for head in (False, True):
        run = executor(scheme, isa, num_threads, head=head)
        run.set_profiling(True)
        columns = np.s_[OUTPUTS[0] :] if head else np.s_[:]
        for rows in ROWS:
            batch = step_batch([SequenceRows([i], 0, [i], logits=1) for i in range(rows)])
            got = run.run(batch, kv).logits
            np.testing.assert_array_equal(numerics.bits(got), numerics.bits(want[:rows, columns]))
        tiles = [t.tiles for t in run.profile() if t.weight_bytes]
        assert max(tiles) >= num_threads
