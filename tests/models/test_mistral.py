"""What is special to Mistral's configurations."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import transformers

from farthing.errors import ModelFormatError
from farthing.models.checkpoint import open_checkpoint
from farthing.models.mistral import FAMILY
from farthing.models.registry import FAMILIES, build_program
from farthing.program.reference import ReferenceExecutor
from farthing.program.step import SequenceRows, step_batch
from support.configurations import from_config_json, from_gguf
from support.tiny_models import KINDS, hugging_face_config, randomize
from support.truth import assert_equal_in_float64, in_float64, logits

FULL, SLIDING = "full_attention", "sliding_attention"


@pytest.mark.parametrize(
    ("values", "window", "layers"),
    [
        ({}, 4096, ()),  # what the class has where config.json says nothing
        ({"sliding_window": None}, None, ()),
        ({"sliding_window": 100}, 100, ()),
        ({"sliding_window": 8191}, 8191, ()),
        ({"sliding_window": 8192}, None, ()),  # all positions: no window
        ({"sliding_window": 32768}, None, ()),
        ({"layer_types": [SLIDING, FULL] * 2 + [FULL]}, 4096, (True, False, True, False, False)),
        ({"layer_types": [SLIDING] * 5}, 4096, ()),
        ({"layer_types": [FULL] * 5}, None, ()),
    ],
    ids=str,
)
def test_windows(values: dict[str, Any], window: int | None, layers: tuple[bool, ...]) -> None:
    config = from_config_json(FAMILY, values)
    assert (config.sliding_window, config.sliding_layers) == (window, layers)


@pytest.mark.parametrize("named", ["MinistralForCausalLM", "MistralForCausalLM"])
def test_ministral_slides_in_some_layers_whatever_it_calls_itself(
    named: str, tmp_path: Path
) -> None:
    """Ministral 8B names Mistral's class, which passes over ``layer_types``, but means its own."""
    kind = replace(KINDS["mistral"], sliding_layers=(True, False, True))
    options = hugging_face_config(kind).to_dict() | {"layer_types": [SLIDING, FULL, SLIDING]}
    model = transformers.MinistralForCausalLM(transformers.MinistralConfig(**options))
    randomize(model, seed=0)
    model.save_pretrained(tmp_path)
    config_path = tmp_path / "config.json"
    values = json.loads(config_path.read_text()) | {"architectures": [named]}
    config_path.write_text(json.dumps(values))

    checkpoint = open_checkpoint(tmp_path, FAMILIES)
    assert checkpoint.config == kind
    executor = ReferenceExecutor(
        build_program(checkpoint.config), lambda name: checkpoint.tensors[name].dequantize()
    )
    tokens = list(range(3, 63))
    ours = executor.run(step_batch([SequenceRows(tokens, 0, range(4), logits=60)])).logits
    model.eval().set_attn_implementation("eager")
    assert_equal_in_float64(ours, logits(model, tokens), logits(in_float64(model), tokens))


def test_biases_are_ignored_as_transformers_does() -> None:
    config = from_config_json(FAMILY, {"attention_bias": True, "mlp_bias": True})
    assert not config.attention_bias
    assert not config.mlp_bias


def test_kv_heads_have_a_default_of_their_own() -> None:
    values = {"num_attention_heads": 16}
    assert from_config_json(FAMILY, values, without="num_key_value_heads").num_kv_heads == 8


def test_scores_that_depend_on_the_position_are_refused() -> None:
    assert from_gguf(FAMILY, {"attention.temperature_scale": 0.0}).architecture == "mistral"
    with pytest.raises(ModelFormatError, match=r"mistral3\.attention\.temperature_scale: is 0\.1"):
        from_gguf(FAMILY, {"attention.temperature_scale": 0.1})
