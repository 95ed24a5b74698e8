"""Routing and combining: the contract's arithmetic bit for bit, the choice, every ISA."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from .float32_model import ISAS, Floats, flat, fma32, hostile, native, same_bits, tree_sum

EXPERTS = [1, 2, 7, 15, 16, 17, 33, 60, 128, 384]
Ids = NDArray[np.int32]


def route_model(logits: Floats, top_k: int, normalize: bool) -> tuple[Ids, Floats]:
    """One row, as the contract writes it."""
    ranked = np.argsort(-logits, kind="stable")[:top_k]
    chosen = np.sort(ranked).astype(np.int32)
    exps = flat(native.exp, logits - logits.max())
    if normalize:
        total = np.float32(0)
        for e in exps[chosen]:
            total = total + e
    else:
        padded = np.zeros(-(-exps.size // 16) * 16, np.float32)
        padded[: exps.size] = exps
        lanes = np.zeros(16, np.float32)
        for columns in padded.reshape(-1, 16):
            lanes = lanes + columns
        total = np.float32(tree_sum(lanes))
    return chosen, exps[chosen] / total


def rows_of_logits(experts: int) -> Floats:
    rng = np.random.default_rng(experts)
    logits = (3 * rng.standard_normal((8, experts))).astype(np.float32)
    logits[1] = logits[1, 0]  # all equal
    logits[2] = np.round(logits[2])  # many equal
    logits[3] = hostile(rng, (experts,))
    logits[4, experts // 2] = -np.inf
    logits[5] -= np.float32(500)  # all far below 0
    logits[6] = np.where(rng.random(experts) < 0.5, np.float32(0.0), np.float32(-0.0))
    logits[7, -1] = 80  # all other probabilities vanish
    return logits


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("experts", EXPERTS)
def test_routing_is_the_contracts(isa: str, normalize: bool, experts: int) -> None:
    logits = rows_of_logits(experts)
    logits[4] = logits[0] if experts == 1 else logits[4]  # one expert at minus infinity: NaN
    for top_k in sorted({1, min(2, experts), min(8, experts), experts}):
        chosen, weights = native.route(isa, logits, top_k, normalize)
        for row in range(len(logits)):
            expected, factors = route_model(logits[row], top_k, normalize)
            assert chosen[row].tolist() == expected.tolist()
            assert same_bits(weights[row], factors)
    assert experts == 1 or np.unique(weights).size > 8


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("normalize", [True, False])
def test_a_total_in_another_order_has_other_bits(isa: str, normalize: bool) -> None:
    """The inverse of the test above: descending where it ascends, one chain where it has lanes."""
    logits = np.random.default_rng(2).standard_normal((64, 60)).astype(np.float32)
    chosen, weights = native.route(isa, logits, 8, normalize)
    regrouped = []
    for row, ids in zip(logits, chosen, strict=True):
        exps = flat(native.exp, row - row.max())
        total = np.float32(0)
        for e in exps[ids][::-1] if normalize else exps:
            total = total + e
        regrouped.append(exps[ids] / total)
    assert (np.stack(regrouped) != weights).any(axis=1).mean() > 0.2


def test_ties_go_to_the_lower_expert() -> None:
    logits = np.array([[1, 2, 2, 0, 2, 1], [5, 5, 5, 5, 5, 5]], np.float32)
    for isa in ISAS:
        assert native.route(isa, logits, 2, True)[0].tolist() == [[1, 2], [0, 1]]
        assert native.route(isa, logits, 4, True)[0].tolist() == [[0, 1, 2, 4], [0, 1, 2, 3]]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("normalize", [True, False])
def test_a_row_without_a_best_expert_becomes_nan_and_stays_in_range(
    isa: str, normalize: bool
) -> None:
    logits = rows_of_logits(33)
    logits[1, 32] = np.nan
    logits[3] = np.nan
    logits[5, 7] = np.inf
    logits[6] = -np.inf
    chosen, weights = native.route(isa, logits, 8, normalize)
    broken = [1, 3, 5, 6]
    assert np.isnan(weights[broken]).all()
    assert chosen[broken].tolist() == [list(range(8))] * 4
    whole = [0, 2, 4, 7]
    expected = native.route(isa, rows_of_logits(33)[whole], 8, normalize)
    assert same_bits(weights[whole], expected[1])
    assert np.isfinite(expected[1]).all()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("width", [1, 15, 16, 17, 48, 65])
def test_experts_are_added_in_the_order_of_the_contract(isa: str, width: int) -> None:
    rng = np.random.default_rng(width)
    y, add = hostile(rng, (9, width)), hostile(rng, (width,))
    rows = np.array([7, 0, 3, 3], np.int32)
    weights = rng.random(4).astype(np.float32)
    acc = np.zeros(width, np.float32)
    for row, weight in zip(rows, weights, strict=True):
        acc = fma32(weight, y[row], acc)
    assert same_bits(native.combine(isa, y, rows, weights), acc)
    assert same_bits(native.combine(isa, y, rows, weights, add), acc + add)


@pytest.mark.parametrize("isa", ISAS)
def test_experts_added_in_another_order_have_other_bits(isa: str) -> None:
    """What the test above would catch."""
    rng = np.random.default_rng(1)
    y = rng.standard_normal((8, 256)).astype(np.float32)
    rows, weights = np.arange(8, dtype=np.int32), rng.random(8).astype(np.float32)
    forwards = native.combine(isa, y, rows, weights)
    backwards = native.combine(isa, y, rows[::-1].copy(), weights[::-1].copy())
    assert not same_bits(forwards, backwards)
    assert np.allclose(forwards, backwards, rtol=1e-4, atol=1e-5)
