"""A tiny model in which one dimension of the residual stream and one weight are far too large."""

from __future__ import annotations

from pathlib import Path

import safetensors.numpy

from support.tiny_models import make_tiny_model

KIND = "qwen2-tied"
DIMENSION = 37
"""Of the residual stream: large from layer 1 on."""
LAYER = 1
MATRIX = "model.layers.2.self_attn.o_proj.weight"
PLACE = (3, 5)
WEIGHT = 25.0
"""At ``PLACE`` of ``MATRIX``; the others' standard deviation is 0.15."""


def make_planted_model(directory: Path) -> Path:
    """Writes it into ``directory``; returns that."""
    make_tiny_model(KIND, directory)
    file = directory / "model.safetensors"
    tensors = safetensors.numpy.load_file(file)
    tensors[f"model.layers.{LAYER}.mlp.down_proj.weight"][DIMENSION] *= 300
    tensors[MATRIX][PLACE] = WEIGHT
    safetensors.numpy.save_file(tensors, file, {"format": "pt"})
    return directory
