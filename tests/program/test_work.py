"""Bytes and multiply-adds of a pass, counted against the player and by hand."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from farthing.program.step import SequenceRows, StepBatch, step_batch
from farthing.program.work import (
    Work,
    attention_work,
    linear_work,
    pass_work,
    weight_bytes_by_scheme,
)
from support.native_runs import NativeModel
from support.tiny_models import make_tiny_model


@pytest.fixture(scope="module", params=["qwen2-tied", "gemma2", "qwen3-moe-mixed"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> NativeModel:
    return NativeModel(make_tiny_model(request.param, tmp_path_factory.mktemp("model")))


def batch_of(*sequences: tuple[int, int, int]) -> StepBatch:
    """Of each sequence the rows, where they begin, and how many want logits."""
    return step_batch(
        [
            SequenceRows([1] * rows, start, range(i * 20, i * 20 + 20), logits)
            for i, (rows, start, logits) in enumerate(sequences)
        ]
    )


BATCHES = {
    "one row": batch_of((1, 40, 1)),
    "a batch": batch_of((1, 40, 1), (1, 3, 1), (1, 100, 1)),
    "a prompt": batch_of((33, 0, 1)),
    "chunks without logits": batch_of((20, 30, 0), (5, 0, 0)),
    "all at once": batch_of((20, 30, 2), (1, 77, 1), (7, 0, 7)),
}


@pytest.mark.parametrize("name", BATCHES)
def test_weight_bytes_are_those_the_player_reads(model: NativeModel, name: str) -> None:
    run = model.run()
    batch = BATCHES[name]
    run.executor.set_profiling(True)
    run.executor.run(batch, run.kv)
    timings = [t for t in run.executor.profile() if t.weight_bytes]
    if not len(batch.logit_rows):
        timings.pop()  # the head is listed with its bytes, and has nothing to do
    read = sum(t.weight_bytes for t in timings)
    counted = linear_work(model.program, model.weights, batch).weight_bytes
    experts = model.config.experts
    if experts is None:
        assert counted == read > 0
        return
    sizes = [
        w.nbytes  # type: ignore[union-attr]
        for name, w in model.weights.items()
        if ".experts." in name
    ]
    dense = len(experts.dense_layers)
    one = sum(sizes) // (experts.count * (model.config.num_layers - dense))
    chosen = 1 - (1 - experts.per_token / experts.count) ** len(batch.tokens)
    expected = (model.config.num_layers - dense) * round(experts.count * chosen * one)
    assert counted == read + expected > read > 0


def test_products_are_rows_times_outputs_times_inputs(model: NativeModel) -> None:
    c = model.config
    batch = BATCHES["all at once"]
    tokens, logits = len(batch.tokens), len(batch.logit_rows)
    q, kv = c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim
    attention = c.hidden_size * (q + 2 * kv) + q * c.hidden_size
    expected = logits * c.vocab_size * c.hidden_size
    for layer in range(c.num_layers):
        experts = c.layer_experts(layer)
        expected += tokens * attention
        if experts is None:
            expected += tokens * 3 * c.hidden_size * c.intermediate_size
        else:
            inner = 3 * c.hidden_size * experts.intermediate_size
            expected += tokens * (experts.per_token * inner + experts.count * c.hidden_size)
    work = linear_work(model.program, model.weights, batch)
    assert (work.float_macs, work.integer_macs) == (expected, 0)  # float32 weights


@pytest.mark.parametrize("name", BATCHES)
def test_attention_reads_what_some_row_sees(model: NativeModel, name: str) -> None:
    c, batch = model.config, BATCHES[name]
    kv = model.run(kv_dtype="fp32").kv
    pairs = read = 0
    for layer in range(c.num_layers):
        window = c.window(layer)
        for positions in _positions(batch):
            seen = [set(range(max(0, p + 1 - (window or p + 1)), p + 1)) for p in positions]
            pairs += sum(map(len, seen))
            read += len(set().union(*seen))
    work = attention_work(model.program, kv, batch)
    assert work.kv_bytes == read * 2 * c.num_kv_heads * c.head_dim * 4
    assert work.float_macs == pairs * 2 * c.num_heads * c.head_dim
    assert (work.weight_bytes, work.integer_macs) == (0, 0)


def _positions(batch: StepBatch) -> Iterable[list[int]]:
    for start, stop in zip(batch.row_offsets, batch.row_offsets[1:], strict=False):
        yield batch.positions[start:stop].tolist()


def test_a_pass_is_its_products_and_its_attention(model: NativeModel) -> None:
    batch = BATCHES["all at once"]
    kv = model.run().kv
    whole = pass_work(model.program, model.weights, kv, batch)
    linear = linear_work(model.program, model.weights, batch)
    attention = attention_work(model.program, kv, batch)
    assert whole == linear + attention != linear
    assert whole.total_bytes == linear.weight_bytes + attention.kv_bytes
    assert whole.macs == linear.float_macs + attention.float_macs


def test_int8_products_are_told_from_float(model: NativeModel) -> None:
    assert Work(1, 2, 3, 4) + Work(10, 20, 30, 40) == Work(11, 22, 33, 44)
    sizes = weight_bytes_by_scheme(model.weights)
    matrices = sum(w.nbytes for w in model.weights.values() if not isinstance(w, np.ndarray))
    assert sizes == {"f32": matrices}
