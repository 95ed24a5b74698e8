"""What is special to SmolLM3's configurations: which layers rotate."""

from __future__ import annotations

from typing import Any

import pytest

from farthing.errors import ModelFormatError
from farthing.models.smollm3 import FAMILY
from support.configurations import from_config_json, from_gguf

EVERY_FOURTH = (True, True, True, False, True)


def test_defaults_are_those_of_the_class() -> None:
    config = from_config_json(FAMILY)
    assert (config.tie_word_embeddings, config.rope.theta) == (True, 2e6)
    assert not from_config_json(FAMILY, {"tie_word_embeddings": False}).tie_word_embeddings
    assert from_config_json(FAMILY, {"rope_theta": 5e6}).rope.theta == 5e6


@pytest.mark.parametrize(
    ("values", "layers"),
    [
        ({}, EVERY_FOURTH),
        ({"no_rope_layer_interval": 2}, (True, False, True, False, True)),
        ({"no_rope_layer_interval": 6}, ()),
        ({"no_rope_layer_interval": 1}, (False,) * 5),
        ({"no_rope_layers": [1, 0, 1, 1, 1]}, (True, False, True, True, True)),
        ({"no_rope_layers": [1, 0, 1, 1, 1, 0, 0]}, (True, False, True, True, True)),
        ({"no_rope_layers": [1] * 5, "no_rope_layer_interval": 2}, ()),
    ],
    ids=str,
)
def test_layers_that_rotate(values: dict[str, Any], layers: tuple[bool, ...]) -> None:
    assert from_config_json(FAMILY, values).rope_layers == layers


def test_gguf_files_always_mean_every_fourth_layer() -> None:
    config = from_gguf(FAMILY)
    assert config.rope_layers == EVERY_FOURTH
    assert config.layer_rope(3) is None
    assert from_gguf(FAMILY, {"block_count": 3}).rope_layers == ()


@pytest.mark.parametrize(
    ("values", "field", "problem"),
    [
        ({"no_rope_layers": [1, 0]}, "no_rope_layers", "a list of 5"),
        ({"no_rope_layers": "1"}, "no_rope_layers", "a list of 5"),
        ({"no_rope_layers": [1, 0, True, 1, 1]}, "no_rope_layers[2]", "neither 0 nor 1"),
        ({"no_rope_layers": [1, 0.0, 1, 1, 1]}, "no_rope_layers[1]", "neither 0 nor 1"),
        ({"no_rope_layers": [1, 0, 2, 1, 1]}, "no_rope_layers[2]", "neither 0 nor 1"),
        ({"no_rope_layers": [1, 0, "x", 1, 1]}, "no_rope_layers[2]", "neither 0 nor 1"),
        ({"no_rope_layer_interval": 0}, "no_rope_layer_interval", "is 0"),
    ],
    ids=str,
)
def test_layers_that_cannot_be_are_refused(
    values: dict[str, Any], field: str, problem: str
) -> None:
    with pytest.raises(ModelFormatError, match=problem) as caught:
        from_config_json(FAMILY, values)
    assert caught.value.field == field


def test_layers_that_do_not_rotate_slide_unless_told_otherwise() -> None:
    window = {"use_sliding_window": True, "sliding_window": 64}
    config = from_config_json(FAMILY, window)
    assert config.sliding_layers == tuple(not rotates for rotates in EVERY_FOURTH)
    types = ["sliding_attention"] + ["full_attention"] * 4
    config = from_config_json(FAMILY, window | {"layer_types": types})
    assert config.sliding_layers == (True, False, False, False, False)
    assert config.rope_layers == EVERY_FOURTH
