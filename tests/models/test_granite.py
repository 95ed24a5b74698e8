"""What is special to Granite's configurations: its scales."""

from __future__ import annotations

import pytest

from farthing.config import ModelConfig
from farthing.errors import ModelFormatError
from farthing.models.granite import FAMILY
from support.configurations import from_config_json, from_gguf

SCALES = {
    "attention_multiplier": 0.0078125,
    "embedding_multiplier": 12.0,
    "residual_multiplier": 0.22,
    "logits_scaling": 16.0,
}
GGUF_SCALES = {
    "attention.scale": 0.0078125,
    "embedding_scale": 12.0,
    "residual_scale": 0.22,
    "logit_scale": 16.0,
}


def scales(c: ModelConfig) -> tuple[float | None, float, float, float]:
    return c.attention_scale, c.embedding_scale, c.residual_scale, c.logit_scale


def test_both_formats_have_the_same_scales() -> None:
    expected = (0.0078125, 12.0, 0.22, 1 / 16)
    assert scales(from_config_json(FAMILY, SCALES)) == expected
    assert scales(from_gguf(FAMILY, GGUF_SCALES)) == expected


def test_defaults_are_those_of_each_format() -> None:
    assert scales(from_config_json(FAMILY)) == (1.0, 1.0, 1.0, 1.0)
    assert scales(from_gguf(FAMILY)) == (None, 1.0, 1.0, 1.0)
    assert scales(from_gguf(FAMILY, dict.fromkeys(GGUF_SCALES, 0.0))) == (None, 1.0, 1.0, 1.0)


@pytest.mark.parametrize("key", SCALES)
@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), "1"])
def test_scales_that_cannot_be_are_refused(key: str, value: object) -> None:
    with pytest.raises(ModelFormatError) as caught:
        from_config_json(FAMILY, {key: value})
    assert caught.value.field == key


@pytest.mark.parametrize("key", GGUF_SCALES)
@pytest.mark.parametrize("value", [1e-9, -1.0, float("inf"), "1"])
def test_scales_that_cannot_be_are_refused_in_files_too(key: str, value: object) -> None:
    with pytest.raises(ModelFormatError) as caught:
        from_gguf(FAMILY, {key: value})
    assert caught.value.field == f"granite.{key}"


def test_a_file_can_say_that_nothing_rotates() -> None:
    assert from_gguf(FAMILY, {"rope.scaling.finetuned": True}).rope_layers == ()
    assert from_gguf(FAMILY, {"rope.scaling.finetuned": False}).rope_layers == (False,) * 5
