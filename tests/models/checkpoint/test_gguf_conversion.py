"""A model as a GGUF file and as a Hugging Face directory is one model: the same bits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from farthing.models.checkpoint import check_tensors, open_checkpoint
from farthing.models.registry import FAMILIES, build_program
from support.native_runs import NativeModel, assert_same_bits
from support.tiny_gguf import INTERLEAVED, write_gguf
from support.tiny_models import KINDS, make_tiny_model

CONVERTED = [
    ("llama-mha", "llama"),
    ("llama-biases", "llama"),
    ("llama-linear-rope", "llama"),
    ("llama-yarn", "llama"),
    ("mistral", "llama"),
    ("mistral", "mistral3"),
    ("qwen2", "qwen2"),
    ("qwen3", "qwen3"),
    ("qwen3-yarn", "qwen3"),
    ("smollm3", "smollm3"),
    ("phi3", "phi3"),
    ("phi3-longrope", "phi3"),
    ("phi4-mini", "phi3"),
    ("olmo2", "olmo2"),
    ("granite", "granite"),
]


def lost(kind: str, architecture: str) -> dict[str, Any]:
    """What the converter does not write, and what is read instead."""
    if kind == "mistral":
        name = "mistral" if architecture == "mistral3" else architecture
        return {"architecture": name, "sliding_window": None}
    if kind == "phi4-mini":  # the magnitude is always the one that follows from the contexts
        rope = KINDS[kind].rope
        assert rope.scaling is not None
        return {"rope": replace(rope, scaling=replace(rope.scaling, magnitude=1.0))}
    return {}


@pytest.mark.parametrize(("kind", "architecture"), CONVERTED)
def test_a_converted_model_is_the_same_model(kind: str, architecture: str, tmp_path: Path) -> None:
    directory = make_tiny_model(kind, tmp_path / kind)
    path = write_gguf(kind, directory, tmp_path / "model.gguf", architecture=architecture)
    ours, truth = open_checkpoint(path, FAMILIES), open_checkpoint(directory, FAMILIES)
    assert (ours.format, truth.format) == ("gguf", "huggingface")
    expected = replace(truth.config, bos_token_id=None, eos_token_ids=())  # in the tokenizer there
    assert ours.config == replace(expected, **lost(kind, architecture))
    check_tensors(ours, build_program(ours.config).weights)
    assert set(ours.tensors) - set(truth.tensors) <= {
        "rope_factors_long.weight", "rope_factors_short.weight"
    }  # fmt: skip
    for name, tensor in truth.tensors.items():
        np.testing.assert_array_equal(
            ours.tensors[name].dequantize(), tensor.dequantize(), err_msg=name
        )
    moved = ours.tensors["model.layers.0.self_attn.q_proj.weight"].row_order
    assert (moved is not None) == (architecture in INTERLEAVED)
    if not lost(kind, architecture):
        tokens = list(range(3, 103))
        from_gguf, from_directory = (
            NativeModel(source).run().logits(tokens) for source in (path, directory)
        )
        assert_same_bits(from_gguf, from_directory)
