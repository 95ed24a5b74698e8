"""What a pass may take beside weights and KV cache, and that it does not grow with the context."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import psutil
import pytest

from farthing.engine.block_pool import BLOCK_TOKENS as POOL_BLOCK_TOKENS
from farthing.program.native import KvCache
from farthing.program.step import BLOCK_TOKENS, SequenceRows
from support.native_runs import NativeModel
from support.tiny_models import make_tiny_model

LONG = 32_768


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> NativeModel:
    return NativeModel(make_tiny_model("llama-mha", tmp_path_factory.mktemp("tiny")))


def peak_growth(model: NativeModel, position: int) -> tuple[int, int]:
    """Bytes of workspace, and of resident memory that a second pass at ``position`` adds."""
    run = model.run(tokens=LONG)
    rng = np.random.default_rng(0)
    rows = 128
    table = run.new_sequence(LONG)
    tokens = rng.integers(0, model.config.vocab_size, rows).tolist()
    step = [SequenceRows(tokens, position, table)]
    run.step(step)
    before = psutil.Process().memory_info().rss
    run.step(step)
    return run.executor.workspace_bytes, psutil.Process().memory_info().rss - before


def assert_independent_of_context(model: NativeModel) -> None:
    short, long = peak_growth(model, 0), peak_growth(model, LONG - 128)
    assert short[0] == long[0]
    assert long[1] <= max(short[1], 0) + (1 << 20)


def test_workspace_does_not_depend_on_context_length(tiny: NativeModel) -> None:
    assert_independent_of_context(tiny)


@pytest.mark.slow
def test_workspace_of_the_default_model_does_not_depend_on_context_length(qwen_gguf: Path) -> None:
    model = NativeModel(qwen_gguf)
    assert model.run().executor.workspace_bytes < 64 << 20
    assert_independent_of_context(model)


def test_the_block_size_is_one_number(tiny: NativeModel) -> None:
    config = tiny.config
    assert POOL_BLOCK_TOKENS == BLOCK_TOKENS
    for dtype, element in (("fp16", 2), ("fp32", 4)):
        kv = KvCache(
            dtype=dtype,
            num_layers=config.num_layers,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            num_blocks=3,
        )
        per_token = 2 * config.num_layers * config.num_kv_heads * config.head_dim * element
        assert kv.block_bytes == BLOCK_TOKENS * per_token
        assert kv.nbytes == 3 * kv.block_bytes


def test_indices_outside_their_range_are_refused_by_name(tiny: NativeModel) -> None:
    run = tiny.run(tokens=64)
    table = run.new_sequence(32)
    vocab = tiny.config.vocab_size
    with pytest.raises(ValueError, match=f"tokens has {vocab}, must be from 0 below {vocab}"):
        run.step([SequenceRows([vocab], 0, table)])
    with pytest.raises(ValueError, match="tokens has -1"):
        run.step([SequenceRows([-1], 0, table)])
    with pytest.raises(ValueError, match="block_tables has 4, must be from 0 below 4"):
        run.step([SequenceRows([1], 0, [4])])
    with pytest.raises(ValueError, match="the step has 513, must be at most 512 rows"):
        tiny.run().step([SequenceRows([1] * 513, 0, list(range(40)))])
