"""Parts of a program compute together, bit for bit, what the whole does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from farthing.engine.logit_head import LogitHead
from farthing.program.builder import ProgramBuilder
from farthing.program.native import NativeExecutor
from farthing.program.ops import Program
from farthing.program.parts import body, seams, section
from farthing.program.weights import NativeMatrix, NativeWeight, load_weights
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


def test_sections_one_after_another_are_the_whole_model(model: NativeModel) -> None:
    run = model.run(num_threads=1, tokens=64)
    expected = run.logits(TOKENS)
    places = [*seams(model.program), len(model.program.ops)]
    assert len(places) > 2 * model.config.num_layers
    table = next(s for s in model.program.weights if s.name == model.program.ops[0].table)  # type: ignore[union-attr]
    p = ProgramBuilder()
    embeddings = p.finish(p.logit_rows(p.embed(table)))
    found = played(model, embeddings, {}, TOKENS)
    for start, stop in pairwise(places):
        rows = NativeMatrix("f32", *found.shape)
        rows.pack(0, np.ascontiguousarray(found).view(np.uint8))
        program = section(model.program, start, stop, "states", len(found))
        found = played(model, program, {"states": rows}, range(len(TOKENS)))
    assert_same_bits(found, expected)


def played(
    model: NativeModel, program: Program, more: dict[str, NativeWeight], tokens: Sequence[int]
) -> Logits:
    executor = NativeExecutor(program, {**model.weights, **more}, num_threads=1, max_rows=64)
    kv = model.run(num_threads=1, tokens=64).kv
    return NativeRun(executor, kv, 0).logits(tokens).copy()


def test_a_mistake_behind_the_output_projection_is_noticed(tmp_path: Path) -> None:
    """The inverse test: Granite scales its logits, which is the head's to do."""
    model = NativeModel(make_tiny_model("granite", tmp_path))
    unscaled = replace(model.checkpoint, config=replace(model.config, logit_scale=1.0))
    logits = LogitHead(unscaled, max_rows=48, num_threads=1).logits(states(model))
    expected = model.run(num_threads=1, tokens=64).logits(TOKENS)
    assert (logits != expected).mean() > 0.99
