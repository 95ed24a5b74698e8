"""The residual stream of tiny models, whatever their family."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from numpy.typing import NDArray

from farthing.errors import ContextLengthError, FarthingError, InvalidParameterError
from farthing.evaluation.inspection.outliers import largest_point, reigns
from farthing.evaluation.inspection.residuals import (
    PROMPT,
    ROWS,
    Prompt,
    ResidualStream,
    encode_prompt,
)
from farthing.models.checkpoint import Checkpoint, open_checkpoint
from farthing.models.registry import FAMILIES, build_program, supported_architectures
from farthing.program.native import KvCache, NativeExecutor
from farthing.program.ops import Tap
from farthing.program.step import SequenceRows, step_batch
from support.native_runs import NativeModel
from support.planted_outliers import DIMENSION, LAYER
from support.tiny_models import KINDS, make_tiny_model


def opened(path: Path) -> Checkpoint:
    return open_checkpoint(path, FAMILIES)


def quietly(done: int, total: int) -> None:
    assert 0 <= done <= total


def stream_of(path: Path, prompt: Prompt) -> ResidualStream:
    layers = opened(path).config.num_layers
    return ResidualStream(path, prompt, layers, num_threads=1, progress=quietly)


def in_one_pass(path: Path, prompt: Prompt) -> dict[str, NDArray[np.float32]]:
    """Every tap of one pass of the whole program, copied."""
    model = NativeModel(path)
    tokens = len(prompt.tokens)
    program = build_program(model.config, context_length=tokens, taps=True)
    executor = NativeExecutor(program, model.weights, num_threads=2, max_rows=tokens)
    blocks = -(-tokens // 16)
    kv = KvCache(
        dtype="fp16",
        num_layers=program.num_layers,
        num_kv_heads=model.config.num_kv_heads,
        head_dim=model.config.head_dim,
        num_blocks=blocks,
    )
    batch = step_batch([SequenceRows(prompt.tokens, 0, range(blocks))])
    taps = executor.run(batch, kv).taps
    return {name: values.astype(np.float32) for name, values in taps.items()}


def test_pieces_give_the_bits_of_one_pass_with_every_tap(planted_model: Path) -> None:
    text = PROMPT[:230]
    prompt = encode_prompt(opened(planted_model), text, "the prompt")
    assert ROWS < len(prompt.tokens) < 2 * ROWS, "one piece alone proves nothing"
    stream = stream_of(planted_model, prompt)
    expected = in_one_pass(planted_model, prompt)
    for layer, name in ((None, "embeddings"), (0, "layers.0.residual"), (2, "layers.2.residual")):
        np.testing.assert_array_equal(stream.values(layer), expected[name])
    assert len({stream.values(layer).tobytes() for layer in (None, 0, 1, 2)}) == 4


def test_maxima_are_those_of_the_whole_stream(planted_model: Path) -> None:
    prompt = encode_prompt(opened(planted_model), PROMPT[:230], "the prompt")
    told: list[tuple[int, int]] = []
    points = stream_of(planted_model, prompt).outliers(lambda *counts: told.append(counts))
    expected = in_one_pass(planted_model, prompt)
    assert [point.layer for point in points] == [None, 0, 1, 2]
    for point in points:
        name = "embeddings" if point.layer is None else f"layers.{point.layer}.residual"
        for found, rows in (
            (point.all_tokens, expected[name]),
            (point.after_first, expected[name][1:]),
        ):
            np.testing.assert_array_equal(found.magnitudes, np.abs(rows).max(axis=0))
            skipped = len(expected[name]) - len(rows)
            places = (found.positions - skipped, np.arange(rows.shape[1]))
            np.testing.assert_array_equal(rows[places], found.values)
    assert told == [(ROWS, len(prompt.tokens)), (len(prompt.tokens),) * 2]


def test_a_planted_dimension_is_found_where_it_begins(planted_model: Path) -> None:
    prompt = encode_prompt(opened(planted_model), PROMPT[:80], "the prompt")
    points = stream_of(planted_model, prompt).outliers(quietly)
    last = reigns(points)[-1]
    assert (last.dimension, last.first_layer, last.last_layer) == (DIMENSION, LAYER, 2)
    worst = largest_point(points)
    assert worst.layer in (1, 2)
    assert worst.all_tokens.top(1)[0].dimension == DIMENSION
    assert worst.all_tokens.maximum > 20 * worst.all_tokens.median
    before = points[1].all_tokens
    assert before.magnitudes[DIMENSION] < 5 * before.median


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_family_hands_out_its_residual_stream(kind: str) -> None:
    config = KINDS[kind]
    program = build_program(config, taps=True)
    taps = {op.name: op.x for op in program.ops if isinstance(op, Tap)}
    wanted = ["embeddings", *(f"layers.{i}.residual" for i in range(config.num_layers))]
    assert {taps[name].width for name in wanted} == {config.hidden_size}
    assert len({taps[name].id for name in wanted}) == len(wanted)


def test_kinds_are_of_every_family() -> None:
    assert {config.architecture for config in KINDS.values()} == set(supported_architectures())


@pytest.mark.parametrize("kind", ["gemma3", "granite", "olmo2", "qwen3-moe"])
def test_families_that_add_otherwise_run(kind: str, tmp_path: Path) -> None:
    path = make_tiny_model(kind, tmp_path / kind)
    prompt = encode_prompt(opened(path), PROMPT[:60], "the prompt")
    points = stream_of(path, prompt).outliers(quietly)
    expected = in_one_pass(path, prompt)
    last = f"layers.{points[-1].layer}.residual"
    np.testing.assert_array_equal(
        points[-1].all_tokens.magnitudes, np.abs(expected[last]).max(axis=0)
    )


def test_tokens_are_the_prompts_with_the_models_beginning(tmp_path: Path) -> None:
    path = make_tiny_model("llama-mha", tmp_path / "bos")
    prompt = encode_prompt(opened(path), "A farthing.", "the prompt")
    assert prompt.tokens[0] == KINDS["llama-mha"].bos_token_id
    assert prompt.spellings[0] == "<|begin|>"
    assert "".join(prompt.spellings[1:]).strip() == "A farthing."


@pytest.mark.parametrize(
    ("text", "error", "problem"),
    [
        ("", InvalidParameterError, "--prompt: has 0 token(s); at least 2 are needed"),
        ("word " * 400, ContextLengthError, "more than the model's context of 256"),
    ],
)
def test_prompts_that_do_not_do_are_refused(
    planted_model: Path, text: str, error: type[FarthingError], problem: str
) -> None:
    with pytest.raises(error, match="--prompt: has") as caught:
        encode_prompt(opened(planted_model), text, "--prompt")
    assert problem in str(caught.value)


def test_a_stream_that_is_not_finite_is_told(planted_model: Path, tmp_path: Path) -> None:
    path = make_tiny_model("qwen2-tied", tmp_path / "infinite")
    file = path / "model.safetensors"
    tensors = safetensors.numpy.load_file(file)
    tensors["model.layers.1.mlp.down_proj.weight"] *= 1e37
    tensors["model.layers.1.mlp.up_proj.weight"] *= 1e10
    safetensors.numpy.save_file(tensors, file, {"format": "pt"})
    prompt = encode_prompt(opened(path), PROMPT[:60], "the prompt")
    with pytest.raises(FarthingError, match=r"layers\.1\.residual is not finite"):
        stream_of(path, prompt).outliers(quietly)
