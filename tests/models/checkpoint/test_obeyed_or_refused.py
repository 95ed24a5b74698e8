"""Keys that change what a model computes are obeyed or refused, never passed over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from farthing.errors import ModelFormatError
from farthing.models.family import Family
from farthing.models.registry import FAMILIES, find_family
from support.configurations import from_config_json, from_gguf

LLAMA = find_family("llama")
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_models_that_look_ahead_are_refused(family: Family) -> None:
    """Models of embeddings have these keys, which transformers and llama.cpp obey."""
    assert from_config_json(family, EXPERTS | {"is_causal": True}).architecture == family.name
    with pytest.raises(ModelFormatError, match="is_causal: is false"):
        from_config_json(family, EXPERTS | {"is_causal": False})
    with pytest.raises(ModelFormatError, match=r"attention\.causal: is false"):
        from_gguf(family, {"attention.causal": False})
    assert from_gguf(LLAMA, {"attention.causal": True}) == from_gguf(LLAMA)


SCALING = {"rope_type": "linear", "factor": 4.0}


@pytest.mark.parametrize(
    "parameters", [{"rope_type": "default", "rope_theta": 5e5}, {"rope_type": "linear"}], ids=str
)
def test_scaling_beside_other_rope_parameters_is_refused(parameters: Mapping[str, Any]) -> None:
    """As after advice for release 4 of transformers was followed with a file of release 5."""
    both = {"rope_parameters": parameters, "rope_scaling": SCALING}
    with pytest.raises(ModelFormatError, match="rope_scaling: does not agree with rope_parameters"):
        from_config_json(LLAMA, both)


@pytest.mark.parametrize("other", [{}, None, SCALING], ids=str)
def test_scaling_beside_rope_parameters_that_say_the_same_is_read(other: object) -> None:
    parameters = SCALING | {"rope_theta": 5e5}
    both = from_config_json(LLAMA, {"rope_parameters": parameters, "rope_scaling": other})
    assert both == from_config_json(LLAMA, {"rope_parameters": parameters})


def test_an_activation_under_the_key_of_another_family_is_not_read() -> None:
    config = from_config_json(LLAMA, {"hidden_activation": "gelu_pytorch_tanh"})
    assert config.activation == "silu"
    gemma = find_family("gemma2")
    assert from_config_json(gemma, {"hidden_act": "silu"}).activation == "gelu_tanh"


@pytest.mark.parametrize("name", ["qwen2", "qwen3", "qwen3_moe"])
def test_the_window_of_a_sliding_qwen_is_4096_where_nothing_is_said(name: str) -> None:
    family = find_family(name)
    keys = {"use_sliding_window": True, "num_hidden_layers": 30} | EXPERTS
    layers = [4096 if name == "qwen3_moe" or i >= 28 else None for i in range(30)]
    config = from_config_json(family, keys)
    assert [config.window(i) for i in range(30)] == layers
    for all_positions in (8192, 1 << 20):
        wide = from_config_json(family, keys | {"sliding_window": all_positions})
        assert wide.sliding_window is None
    assert from_config_json(family, keys | {"sliding_window": None}).sliding_window is None
