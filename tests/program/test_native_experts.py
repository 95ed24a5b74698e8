"""The moe operation alone: every scheme of experts, ties, tiles and what a pass may take."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from numpy.typing import NDArray

from farthing import _native
from farthing.cli.doctor.kernel_cases import random_matrix
from farthing.program.builder import ProgramBuilder
from farthing.program.native import KvCache, NativeExecutor
from farthing.program.ops import Program, WeightSlot
from farthing.program.reference import ReferenceExecutor
from farthing.program.step import SequenceRows, step_batch
from farthing.program.weights import NativeWeight

WIDTH, INNER, EXPERTS, TOP_K, VOCAB = 256, 256, 6, 2, 400
ROWS = 300  # on 2 of 6 experts: more than a tile takes for each
Floats = NDArray[np.float32]

# Schemes of gate, up and down. The mixed ones read their input as floats, in groups of 32 and of
# 256 within one operation.
STACKS = [
    *[(scheme["name"],) * 3 for scheme in _native.schemes()],
    ("q4_k", "q8_0", "q6_k"),
    ("bf16", "q5_k", "q5_0"),
    ("q4_0", "q4_0", "f16"),
]


def moe_program(*, top_k: int = TOP_K, normalize: bool = True, add: bool = True) -> Program:
    def stack(name: str, *shape: int) -> list[WeightSlot]:
        return [WeightSlot(f"{name}.{e}", shape) for e in range(EXPERTS)]

    p = ProgramBuilder()
    x = p.embed(WeightSlot("table", (VOCAB, WIDTH)))
    h = p.rms_norm(x, WeightSlot("norm", (WIDTH,)), 1e-6)
    gate, up = stack("gate", INNER, WIDTH), stack("up", INNER, WIDTH)
    router, down = WeightSlot("router", (EXPERTS, WIDTH)), stack("down", WIDTH, INNER)
    y = p.moe(h, router, gate, up, down, top_k=top_k, normalize=normalize, add=x if add else None)
    return p.finish(p.linear(p.logit_rows(y), WeightSlot("table", (VOCAB, WIDTH))))


def float_matrix(values: Floats) -> _native.Matrix:
    matrix = _native.Matrix("f32", *values.shape)
    matrix.pack(0, np.ascontiguousarray(values).view(np.uint8))
    return matrix


def make_weights(stacks: tuple[str, ...], seed: int = 0) -> dict[str, NativeWeight]:
    rng = np.random.default_rng(seed)
    schemes = {scheme["name"]: scheme for scheme in _native.schemes()}
    weights: dict[str, NativeWeight] = {
        "table": float_matrix(rng.standard_normal((VOCAB, WIDTH)).astype(np.float32)),
        "norm": np.exp(0.3 * rng.standard_normal(WIDTH)).astype(np.float32),
        "router": float_matrix((rng.standard_normal((EXPERTS, WIDTH)) / 16).astype(np.float32)),
    }
    for name, scheme in zip(("gate", "up", "down"), stacks, strict=True):
        for e in range(EXPERTS):
            weights[f"{name}.{e}"] = random_matrix(rng, schemes[scheme], WIDTH, INNER)
    return weights


def run(
    program: Program,
    weights: Mapping[str, NativeWeight],
    tokens: list[int],
    *,
    num_threads: int = 2,
    isa: str | None = None,
    chunk: int = ROWS,
) -> Floats:
    """Logits (n, vocab) of the tokens, ``chunk`` a pass; there is no attention between them."""
    executor = NativeExecutor(program, weights, num_threads=num_threads, isa=isa, max_rows=chunk)
    kv = KvCache(dtype="fp32", num_layers=1, num_kv_heads=1, head_dim=16, num_blocks=32)
    parts = []
    for start in range(0, len(tokens), chunk):
        piece = tokens[start : start + chunk]
        rows = [SequenceRows(piece, 0, range(20), logits=len(piece))]
        parts.append(executor.run(step_batch(rows), kv).logits.copy())
    return np.concatenate(parts)


def same_bits(a: Floats, b: Floats) -> bool:
    both_nan = np.isnan(a) & np.isnan(b)
    return bool(((a.view(np.uint32) == b.view(np.uint32)) | both_nan).all())


@pytest.mark.parametrize("stacks", STACKS, ids=lambda stacks: "-".join(dict.fromkeys(stacks)))
def test_a_row_alone_has_the_bits_it_has_among_others(stacks: tuple[str, ...]) -> None:
    program, weights = moe_program(), make_weights(stacks)
    tokens = np.random.default_rng(1).integers(0, VOCAB, ROWS).tolist()
    whole = run(program, weights, tokens)
    assert np.isfinite(whole).mean() > 0.9
    assert np.unique(whole[:, 0]).size > ROWS // 3
    assert same_bits(run(program, weights, tokens[:60], chunk=1), whole[:60])
    assert same_bits(run(program, weights, tokens, chunk=7, num_threads=3), whole)
    for isa in _native.supported_isas():
        part = tokens[:33]
        assert same_bits(run(program, weights, part, isa=isa), whole[:33])


@pytest.mark.parametrize("top_k", [1, 2, EXPERTS])
@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("add", [True, False])
def test_float_experts_are_near_the_definition(top_k: int, normalize: bool, add: bool) -> None:
    """Nearer than twice the error of plain float32 on the same weights."""
    program, weights = moe_program(top_k=top_k, normalize=normalize, add=add), scaled_weights()
    tokens = np.random.default_rng(2).integers(0, VOCAB, ROWS).tolist()

    def stored(name: str) -> Floats:
        weight = weights[name]
        if isinstance(weight, np.ndarray):
            return weight
        return weight.dequantize(0, weight.rows)

    rows = step_batch([SequenceRows(tokens, 0, range(20), logits=ROWS)])
    truth = ReferenceExecutor(program, stored).run(rows).logits
    error = np.abs(run(program, weights, tokens) - truth)
    plain = np.abs(plain_float32(program, stored, tokens) - truth)
    assert truth.std() > 0.1
    assert error.max() <= 2 * plain.max()
    assert np.sqrt((error**2).mean()) <= 2 * np.sqrt((plain**2).mean())


def scaled_weights() -> dict[str, NativeWeight]:
    rng = np.random.default_rng(3)
    weights = make_weights(("f32", "f32", "f32"))
    for name in ("gate", "up", "down"):
        for e in range(EXPERTS):
            values = rng.standard_normal((WIDTH, INNER)) / 16
            weights[f"{name}.{e}"] = float_matrix(values.astype(np.float32))
    return weights


def plain_float32(program: Program, stored: object, tokens: list[int]) -> Floats:
    """The program's one layer in float32, one product and one sum after the other."""
    (op,) = [op for op in program.ops if type(op).__name__ == "Moe"]
    assert callable(stored)
    x = stored("table")[tokens]
    h = x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(1e-6)) * stored("norm")
    scores = chain(h, stored("router"))
    e = np.exp(scores - scores.max(-1, keepdims=True))
    chosen = np.argsort(-scores, axis=-1, kind="stable")[:, : op.top_k]
    weight = np.take_along_axis(e / e.sum(-1, keepdims=True), chosen, -1)
    if op.normalize:
        weight = weight / weight.sum(-1, keepdims=True)
    y = np.zeros_like(x)
    for expert in range(EXPERTS):
        rows, rank = np.nonzero(chosen == expert)
        gate, up = chain(h[rows], stored(f"gate.{expert}")), chain(h[rows], stored(f"up.{expert}"))
        inner = gate / (1 + np.exp(-gate)) * up
        y[rows] += weight[rows, rank, None] * chain(inner, stored(f"down.{expert}"))
    return chain(y if op.add is None else y + x, stored("table"))


def chain(x: Floats, weight: Floats) -> Floats:
    """``x @ weight.T``, columns added one after the other."""
    acc = np.zeros((len(x), len(weight)), np.float32)
    for k in range(x.shape[1]):
        acc = acc + x[:, k, None] * weight[None, :, k]
    return acc


def test_equal_scores_go_to_the_lower_experts() -> None:
    """Experts 1, 3 and 4 score alike and highest: 1 and 3 are asked, and nobody else."""
    weights = make_weights(("f32",) * 3)
    router = np.zeros((EXPERTS, WIDTH), np.float32)
    router[[0, 2, 5]] = -1
    weights["norm"] = np.ones(WIDTH, np.float32)
    weights["table"] = float_matrix(np.ones((VOCAB, WIDTH), np.float32))
    weights["router"] = float_matrix(router)
    tokens = list(range(40))
    before = run(moe_program(), weights, tokens)
    for expert in range(EXPERTS):
        kept = weights[f"down.{expert}"]
        weights[f"down.{expert}"] = make_weights(("f32",) * 3, seed=9)[f"down.{expert}"]
        after = run(moe_program(), weights, tokens)
        weights[f"down.{expert}"] = kept
        assert same_bits(after, before) == (expert not in (1, 3))


def test_the_workspace_is_that_of_its_rows() -> None:
    """Routed rows, once for each expert of a row, and no more for longer contexts."""
    weights = make_weights(("q8_0",) * 3)
    sizes = {}
    for rows in (64, 128):
        executor = NativeExecutor(moe_program(), weights, num_threads=2, max_rows=rows)
        sizes[rows] = executor.workspace_bytes
    assert sizes[128] == 2 * sizes[64]
    routed = TOP_K * (4 * 2 * INNER + INNER + 4 * INNER // 32 + 4 * INNER // 16 + 4 * WIDTH)
    assert 128 * routed < sizes[128] < 128 * (routed + 16 * WIDTH)
