"""Passes of a model, of a shape, and of kernels alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from farthing.bench.cache_fill import Heads, attention_only, fill_cache, random_table
from farthing.bench.kernels import attention_cases, make_products, product_cases
from farthing.bench.steps import decode_cases, llm_case, prefill_cases, prepare
from farthing.bench.target import Needs, Target, load_model_target, make_shape_target
from farthing.errors import ContextLengthError
from farthing.program.native import KvCache, NativeExecutor
from farthing.program.step import SequenceRows, step_batch
from farthing.program.work import attention_work, linear_work
from support.tiny_models import make_tiny_model

SHAPE = "layers=2,hidden=64,intermediate=96,heads=4,kv_heads=2,vocab=300"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Target:
    path = make_tiny_model("qwen2", tmp_path_factory.mktemp("model"))
    return load_model_target(
        path, "tiny", Needs(3, 101, rows=64), num_threads=2, kv_cache_dtype="fp32"
    )


@pytest.fixture(scope="module")
def shape() -> Target:
    return make_shape_target(SHAPE, "q4_0", Needs(2, 41), num_threads=1, kv_cache_dtype="fp16")


def test_a_long_prompt_is_read_in_the_passes_of_serving(model: Target) -> None:
    whole, products = prefill_cases(model, 100)  # of 64 and 36 rows
    assert (whole.part, products.part) == ("pass", "linear")
    assert whole.tokens == products.tokens == 100
    batches = [
        step_batch([SequenceRows([0] * 64, 0, range(7), 0)]),
        step_batch([SequenceRows([0] * 36, 64, range(7), 1)]),
    ]
    first, second = (linear_work(model.program, model.weights, b) for b in batches)
    assert products.work == first + second
    assert first.weight_bytes < second.weight_bytes  # the head is read once, for the last row
    attention = attention_work(model.program, model.kv, batches[0])
    attention += attention_work(model.program, model.kv, batches[1])
    assert whole.work == products.work + attention
    assert 0 < products.run() < 60
    assert 0 < whole.run() < 60


@pytest.mark.parametrize("sequences", [1, 3])
def test_sequences_decode_in_blocks_of_their_own(model: Target, sequences: int) -> None:
    whole, products = decode_cases(model, sequences, 100)
    batch = step_batch([SequenceRows([0], 100, range(i * 7, i * 7 + 7)) for i in range(sequences)])
    assert products.work == linear_work(model.program, model.weights, batch)
    assert whole.work == products.work + attention_work(model.program, model.kv, batch)
    assert whole.tokens == sequences
    assert whole.settings == {"batch": sequences, "context": 100}
    assert sequences * 7 * 16 <= model.kv.num_blocks * 16
    assert products.run() > 0
    assert whole.run() > 0
    assert not any(t.seconds for t in model.executor.profile())  # nor is a pass as a whole timed


def test_a_token_through_the_llm_takes_a_pass_and_more(model: Target) -> None:
    case = llm_case(model, 3)
    assert case.tokens == 3
    (whole, _) = decode_cases(model, 3, 28)
    assert case.work == whole.work
    assert case.run() > 0


def test_more_context_than_the_model_has_is_refused(tmp_path: Path) -> None:
    path = make_tiny_model("qwen2", tmp_path)
    with pytest.raises(ContextLengthError, match="max_model_len=4097 is more than"):
        load_model_target(path, "tiny", Needs(1, 4097), num_threads=1, kv_cache_dtype="fp16")


def test_a_shape_runs_as_a_model_does(shape: Target) -> None:
    assert shape.llm is None
    assert shape.vocab_size == 300
    prepare(shape)
    for case in [*decode_cases(shape, 2, 40), *prefill_cases(shape, 40)]:
        assert case.run() > 0
        assert case.work.integer_macs > 0
    batch = step_batch([SequenceRows([5], 40, range(3))])
    logits = shape.executor.run(batch, shape.kv).logits
    assert np.isfinite(logits).all()
    assert 0.1 < logits.std() < 10


def test_a_filled_cache_has_values_in_every_block_of_every_layer() -> None:
    """A query that sees one block gives that block's values; zeros would give zeros."""
    layers = [Heads(4, 2, 16), Heads(4, 2, 16, window=5)]
    program = attention_only(layers)
    kv = KvCache(dtype="fp32", num_layers=2, num_kv_heads=2, head_dim=16, num_blocks=70)
    fill_cache(program, kv, 2)
    executor = NativeExecutor(program, random_table(program), num_threads=1)
    for block in (0, 31, 32, 69):
        batch = step_batch([SequenceRows([3], 31, [block, 1 if block != 1 else 2])])
        out = executor.run(batch, kv).logits
        assert np.isfinite(out).all()
        assert np.abs(out).min() > 0
    empty = KvCache(dtype="fp32", num_layers=2, num_kv_heads=2, head_dim=16, num_blocks=70)
    filled = executor.run(step_batch([SequenceRows([3], 47, [5, 6, 7])]), kv).logits.copy()
    unfilled = executor.run(step_batch([SequenceRows([3], 47, [5, 6, 7])]), empty).logits
    assert (np.abs(filled) > np.abs(unfilled)).mean() > 0.5


def test_products_fill_the_memory_asked_for_and_read_all_of_it() -> None:
    products = make_products("q8_0", 160, 128, 200_000)
    size = 160 * 128 // 32 * 34
    assert products.count == -(-200_000 // size) == 10
    one, four = product_cases(products, [1, 4], 2)
    assert one.work.weight_bytes == four.work.weight_bytes == 10 * size
    assert four.work.integer_macs == 4 * one.work.integer_macs == 4 * 10 * 160 * 128
    assert one.settings == {"scheme": "q8_0", "matrix": [160, 128], "matrices": 10, "rows": 1}
    assert one.run() > 0
    assert four.run() > 0


def test_attention_alone_has_no_weights() -> None:
    layers = (Heads(num_heads=4, num_kv_heads=2, head_dim=32),) * 3
    decode, prefill = attention_cases(layers, [50], [20], 1, "fp16")
    assert decode.work.kv_bytes == 3 * 51 * 2 * 2 * 32 * 2
    assert decode.work.float_macs == 3 * 51 * 2 * 4 * 32
    assert prefill.work.float_macs == 3 * (20 * 21 // 2) * 2 * 4 * 32
    assert decode.work.weight_bytes == prefill.work.weight_bytes == 0
    assert decode.run() > 0
    assert prefill.run() > 0
