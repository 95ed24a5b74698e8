"""Body and head of a program compute, bit for bit, what the whole does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from farthing.engine.logit_head import LogitHead
from farthing.program.native import NativeExecutor
from farthing.program.parts import body
from farthing.program.weights import load_weights
from support.native_runs import Logits, NativeModel, NativeRun, assert_same_bits
from support.tiny_gguf import write_gguf
from support.tiny_models import KINDS, make_tiny_model

TOKENS = [(37 * i + 5) % 331 for i in range(48)]


@pytest.fixture(params=[*sorted(KINDS), "qwen2-tied Q8_0", "granite Q5_0"])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> NativeModel:
    kind, _, scheme = request.param.partition(" ")
    path = make_tiny_model(kind, tmp_path / "tiny")
    if scheme:
        path = write_gguf(kind, path, tmp_path / "tiny.gguf", scheme)
    return NativeModel(path)


def states(model: NativeModel) -> Logits:
    program = body(model.program)
    weights = load_weights(program, model.tensors, num_threads=1)
    whole = model.run(num_threads=1, tokens=64)
    executor = NativeExecutor(program, weights, num_threads=1, max_rows=64)
    return NativeRun(executor, whole.kv, 0).logits(TOKENS)


def test_the_logits_are_the_whole_models(model: NativeModel) -> None:
    expected = model.run(num_threads=1, tokens=64).logits(TOKENS)
    found = states(model)
    assert found.shape == (len(TOKENS), model.config.hidden_size)
    part = LogitHead(model.checkpoint, max_rows=32, num_threads=1)
    logits = [part.logits(found[i : i + 32]).copy() for i in (0, 32)]
    assert_same_bits(np.concatenate(logits), expected)


def test_a_mistake_behind_the_output_projection_is_noticed(tmp_path: Path) -> None:
    """The inverse test: Granite scales its logits, which is the head's to do."""
    model = NativeModel(make_tiny_model("granite", tmp_path))
    unscaled = replace(model.checkpoint, config=replace(model.config, logit_scale=1.0))
    logits = LogitHead(unscaled, max_rows=48, num_threads=1).logits(states(model))
    expected = model.run(num_threads=1, tokens=64).logits(TOKENS)
    assert (logits != expected).mean() > 0.99
