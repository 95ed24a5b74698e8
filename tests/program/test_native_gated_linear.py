"""Gates and ups joined as they are made: the bits of joining them afterwards."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest

from farthing import _native
from farthing.cli.doctor.kernel_cases import random_blocks
from farthing.program.builder import ProgramBuilder
from farthing.program.fusion import GatedLinear
from farthing.program.lowering import lower
from farthing.program.native import KvCache, NativeExecutor, NativeWeight
from farthing.program.ops import Program, WeightSlot
from farthing.program.step import SequenceRows, step_batch

VOCAB, WIDTH = 300, 256
ISAS = _native.supported_isas()
SCHEMES: dict[str, Any] = {scheme["name"]: scheme for scheme in _native.schemes()}
MIXED = [
    ("q4_0", "q8_0", "q6_k"),  # the inputs of gate, up and down have groups of 32, 32 and 256
    ("q4_k", "q5_0", "q4_0"),
    ("f16", "q4_1", "q4_k"),
    ("q5_k", "bf16", "f32"),
]


def program(
    inner: int, *, fused: bool, bias: bool, activation: Literal["silu", "gelu_tanh"]
) -> Program:
    """A gated block; a tap between product and gate keeps them apart."""
    p = ProgramBuilder(taps=not fused)
    table = WeightSlot("table", (VOCAB, WIDTH))
    x = p.embed(table)
    h = p.rms_norm(x, WeightSlot("norm", (WIDTH,)), 1e-6)
    gate, up = WeightSlot("gate", (inner, WIDTH)), WeightSlot("up", (inner, WIDTH))
    biases = [WeightSlot("gate_bias", (inner,)), None] if bias else None
    y = p.linear(h, gate, up, biases=biases)
    p.tap(y, "gate_up")
    y = p.linear(p.gated(y, activation), WeightSlot("down", (WIDTH, inner)), add=x)
    return p.finish(p.linear(p.logit_rows(y), table))


def weights(schemes: tuple[str, ...], inner: int) -> dict[str, NativeWeight]:
    rng = np.random.default_rng(inner)
    result: dict[str, NativeWeight] = {
        "norm": np.exp(0.3 * rng.standard_normal(WIDTH)).astype(np.float32),
        "gate_bias": rng.standard_normal(inner).astype(np.float32),
    }
    shapes = ((inner, WIDTH), (inner, WIDTH), (WIDTH, inner), (VOCAB, WIDTH))
    for name, scheme, shape in zip(
        ("gate", "up", "down", "table"), (*schemes, "f32"), shapes, strict=True
    ):
        matrix = _native.Matrix(scheme, *shape)
        if scheme in ("f32", "f16", "bf16"):
            values = (rng.standard_normal(shape) / 16).astype(np.float32)
            stored = {"f32": values, "f16": values.astype(np.float16)}.get(
                scheme, np.ascontiguousarray(values.view(np.uint16)[:, 1::2])
            )
            matrix.pack(0, stored.view(np.uint8))
        else:
            count = shape[0] * shape[1] // SCHEMES[scheme]["block_cols"]
            matrix.pack(0, random_blocks(rng, SCHEMES[scheme], count).reshape(shape[0], -1))
        result[name] = matrix
    return result


def logits(
    program: Program, own: dict[str, NativeWeight], rows: int, isa: str, threads: int
) -> Any:
    executor = NativeExecutor(program, own, num_threads=threads, max_rows=rows, isa=isa)
    kv = KvCache(dtype="fp32", num_layers=1, num_kv_heads=1, head_dim=16, num_blocks=64)
    tokens = [7 * i % VOCAB for i in range(rows)]
    return executor.run(step_batch([SequenceRows(tokens, 0, range(64), logits=rows)]), kv).logits


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("schemes", [*((name,) * 3 for name in SCHEMES), *MIXED], ids="-".join)
def test_gated_tiles_have_the_bits_of_gated_rows(schemes: tuple[str, ...], isa: str) -> None:
    inner = 3 * SCHEMES[schemes[2]]["block_cols"]
    inner = inner if inner >= 96 else 83
    own = weights(schemes, inner)
    options: dict[str, Any] = {"bias": inner % 2 == 1, "activation": "silu"}
    apart = program(inner, fused=False, **options)
    together = program(inner, fused=True, **options)
    groups = {name: w.activation_group for name, w in own.items() if isinstance(w, _native.Matrix)}
    kinds = [
        GatedLinear in [type(i.op) for i in lower(p, groups.__getitem__).instructions]
        for p in (apart, together)
    ]
    assert kinds == [False, True]
    for rows, threads in ((1, 1), (3, 4), (70, 2)) if isa != "scalar" else ((5, 2),):
        expected = logits(apart, own, rows, isa, threads)
        assert expected.std() > 0
        found = logits(together, own, rows, isa, threads)
        np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("schemes", [("q4_0",) * 3, ("q4_k",) * 3, ("f32",) * 3], ids="-".join)
def test_many_rows_of_wide_gates_have_the_same_bits(schemes: tuple[str, ...]) -> None:
    """More rows and columns than a tile takes, and than wait together for their ups."""
    own = weights(schemes, 4864)
    expected, found = (
        logits(program(4864, fused=fused, bias=True, activation="gelu_tanh"), own, 700, isa, 3)
        for fused, isa in ((False, ISAS[-1]), (True, ISAS[-1]))
    )
    assert np.isfinite(expected).all()
    np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32))
