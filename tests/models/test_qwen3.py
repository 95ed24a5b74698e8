"""What is special to Qwen3's configurations."""

from __future__ import annotations

import pytest

from farthing.errors import ModelFormatError
from farthing.models.qwen3 import FAMILY
from support.configurations import from_config_json

SLIDING = {"use_sliding_window": True, "sliding_window": 100}


def test_heads_have_128_dimensions_where_nothing_is_said() -> None:
    assert from_config_json(FAMILY).head_dim == 128
    assert from_config_json(FAMILY, {"head_dim": None}).head_dim == 16
    assert from_config_json(FAMILY, {"head_dim": 32}).head_dim == 32


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
