"""What is special to Phi-3's configurations and files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from farthing.config import Rope, RopeScaling
from farthing.errors import ModelFormatError
from farthing.models.checkpoint import open_checkpoint
from farthing.models.phi3 import FAMILY
from farthing.models.registry import FAMILIES
from farthing.program.rope import longrope_magnitude
from support.configurations import from_config_json, from_gguf
from support.tiny_models import make_tiny_model

LONG = {"type": "longrope", "long_factor": [4.0] * 8, "short_factor": [1.5] * 8}


def scaling(values: dict[str, Any]) -> RopeScaling:
    found = from_config_json(FAMILY, values).rope.scaling
    assert found is not None
    return found


@pytest.mark.parametrize("name", ["longrope", "su"])
def test_longrope_has_its_factors_original_context_and_magnitude(name: str) -> None:
    values = {"rope_scaling": LONG | {"type": name}, "original_max_position_embeddings": 1024}
    assert scaling(values) == RopeScaling(
        "longrope",
        factor=8.0,
        original_context_length=1024,
        factors=(4.0,) * 8,
        short_factors=(1.5,) * 8,
        magnitude=longrope_magnitude(8.0, 1024),
    )


def test_the_original_context_is_4096_where_nothing_is_said() -> None:
    assert scaling({"rope_scaling": LONG}).original_context_length == 4096


def test_factors_are_float32() -> None:
    factors = [1.118320672] + [4.0] * 7  # of Phi-4-mini
    found = scaling({"rope_scaling": LONG | {"long_factor": factors}}).factors
    assert found[0] == float(np.float32(1.118320672)) != 1.118320672


def test_a_part_of_each_head_can_rotate() -> None:
    config = from_config_json(FAMILY, {"partial_rotary_factor": 0.75})
    assert (config.rope, config.head_dim) == (Rope(10_000.0, 12), 16)
    assert from_gguf(FAMILY, {"rope.dimension_count": 12}).rope == config.rope
    with pytest.raises(ModelFormatError, match="rotates 11 of 16"):
        from_config_json(FAMILY, {"partial_rotary_factor": 0.7})


@pytest.mark.parametrize("window", [2047, None, 8192, 262144])
def test_windows_in_both_formats(window: int | None) -> None:
    expected = 2047 if window == 2047 else None  # the whole context is no window
    assert from_config_json(FAMILY, {"sliding_window": window}).sliding_window == expected
    from_file = from_gguf(FAMILY, {"attention.sliding_window": window or 0})
    assert from_file.sliding_window == expected
    assert from_gguf(FAMILY).sliding_window is None


@pytest.mark.parametrize("section", ["rope_scaling", "rope_parameters"])
@pytest.mark.parametrize("kind", ["yarn", "linear"])
def test_other_rope_scalings_are_refused(section: str, kind: str) -> None:
    with pytest.raises(ModelFormatError, match=f"{section}: is of type '{kind}'.*'longrope'"):
        from_config_json(FAMILY, {section: {"rope_type": kind, "factor": 2.0}})


def test_a_part_beside_the_fused_weight_is_a_duplicate(tmp_path: Path) -> None:
    directory = make_tiny_model("phi3", tmp_path)
    tensors = safetensors.numpy.load_file(directory / "model.safetensors")
    tensors["model.layers.2.self_attn.k_proj.weight"] = np.zeros((64, 64), np.float32)
    safetensors.numpy.save_file(tensors, directory / "model.safetensors")
    with pytest.raises(
        ModelFormatError, match=r"duplicate: .*layers\.2\.self_attn\.k_proj"
    ) as caught:
        open_checkpoint(directory, FAMILIES)
    assert caught.value.field == "tensor model.layers.2.self_attn.qkv_proj.weight"


@pytest.mark.parametrize("name", ["self_attn.qkv_proj", "mlp.gate_up_proj"])
def test_fused_weights_of_another_shape_are_refused(name: str, tmp_path: Path) -> None:
    directory = make_tiny_model("phi3", tmp_path)
    tensors = safetensors.numpy.load_file(directory / "model.safetensors")
    key = f"model.layers.1.{name}.weight"
    tensors[key] = tensors[key][:-1]
    safetensors.numpy.save_file(tensors, directory / "model.safetensors")
    with pytest.raises(
        ModelFormatError, match=r"has shape \(\d+, 64\) where \(\d+, 64\)"
    ) as caught:
        open_checkpoint(directory, FAMILIES)
    assert caught.value.field == f"tensor {key}"
