"""What is special to Qwen3's configurations."""

from __future__ import annotations

import pytest

from farthing.errors import ModelFormatError
from farthing.models.qwen3 import FAMILY
from support.configurations import from_config_json, from_gguf

SLIDING = {"use_sliding_window": True, "sliding_window": 100}


def test_heads_have_128_dimensions_where_nothing_is_said() -> None:
    assert from_config_json(FAMILY).head_dim == 128
    assert from_config_json(FAMILY, {"head_dim": None}).head_dim == 16
    assert from_config_json(FAMILY, {"head_dim": 32}).head_dim == 32


def test_yarn_stretches_the_context_in_both_formats() -> None:
    """As Qwen3's model card has it: the scaling is added and the rest of config.json left alone."""
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}
    config = from_config_json(FAMILY, {"rope_scaling": yarn, "head_dim": 16})
    assert config.context_length == 16384
    keys = {"type": "yarn", "factor": 4.0, "original_context_length": 4096}
    from_file = from_gguf(FAMILY, {f"rope.scaling.{key}": value for key, value in keys.items()})
    assert (from_file.context_length, from_file.rope) == (16384, config.rope)
    narrow = yarn | {"factor": 1.5}
    assert from_config_json(FAMILY, {"rope_scaling": narrow}).context_length == 8192
    huge = yarn | {"factor": 1e6, "original_max_position_embeddings": 1 << 28}
    assert from_config_json(FAMILY, {"rope_scaling": huge}).context_length == 1 << 28


def test_windows() -> None:
    assert from_config_json(FAMILY, {"sliding_window": 100}).sliding_window is None
    config = from_config_json(FAMILY, SLIDING | {"max_window_layers": 3})
    assert (config.sliding_window, config.sliding_layers) == (100, (False,) * 3 + (True,) * 2)
    assert from_config_json(FAMILY, SLIDING).sliding_window is None  # from layer 28 on
    assert from_config_json(FAMILY, SLIDING | {"max_window_layers": 0}).sliding_layers == ()


def test_sliding_layers_without_windows_are_refused() -> None:
    types = ["full_attention"] * 4 + ["sliding_attention"]
    with pytest.raises(ModelFormatError, match="layer_types: has sliding layers, but use_sliding"):
        from_config_json(FAMILY, {"layer_types": types})
    assert from_config_json(FAMILY, SLIDING | {"layer_types": types}).window(4) == 100
