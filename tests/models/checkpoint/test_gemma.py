"""Gemma 2 and 3 in both formats: what old and new files say, and what they leave out."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import safetensors.numpy

from farthing.config import ModelConfig, Rope, RopeScaling
from farthing.errors import ModelFormatError
from farthing.models.checkpoint import open_checkpoint
from farthing.models.checkpoint.fields import Fields
from farthing.models.checkpoint.huggingface_config import find_family, read_config
from farthing.models.registry import FAMILIES
from support.native_runs import NativeModel, assert_same_bits
from support.tiny_models import KINDS, make_model

F32 = gguf.GGUFValueType.FLOAT32
SIZES = {"hidden_size": 64, "intermediate_size": 176, "num_hidden_layers": 7}
GEMMA2 = {"architectures": ["Gemma2ForCausalLM"], **SIZES}
GEMMA3 = {"architectures": ["Gemma3ForCausalLM"], **SIZES}
SEES = {"architectures": ["Gemma3ForConditionalGeneration"]}


def read(values: dict[str, Any]) -> ModelConfig:
    fields = Fields(Path("config.json"), values)
    family = find_family(fields, FAMILIES)
    dialect = family.hugging_face
    return read_config(fields.with_defaults(dialect.section, dialect.defaults), None, family)


def test_what_a_gemma_2_leaves_out_is_what_transformers_assumes() -> None:
    config = read(GEMMA2)
    assert config.sliding_layers == (True, False, True, False, True, False, True)
    assert (config.sliding_window, config.context_length) == (4096, 8192)
    assert (config.attention_softcap, config.logit_softcap) == (50.0, 30.0)
    assert (config.attention_scale, config.embedding_scale) == (1 / 16, 8.0)
    assert (config.rope, config.local_rope) == (Rope(10_000.0, 256), None)
    assert (config.activation, config.tie_word_embeddings) == ("gelu_tanh", True)
    assert (config.num_heads, config.num_kv_heads, config.head_dim) == (8, 4, 256)


def test_what_a_gemma_3_leaves_out_is_what_transformers_assumes() -> None:
    config = read(GEMMA3)
    assert config.sliding_layers == (True,) * 5 + (False, True)
    assert (config.sliding_window, config.context_length) == (4096, 131_072)
    assert (config.attention_softcap, config.logit_softcap) == (None, None)
    assert (config.rope, config.local_rope) == (Rope(1e6, 256), Rope(1e4, 256))
    assert (config.vocab_size, config.rms_norm_eps) == (262_208, 1e-6)


@pytest.mark.parametrize("values", [GEMMA2, GEMMA3], ids=["gemma2", "gemma3"])
def test_the_defaults_are_those_of_the_installed_transformers(values: dict[str, Any]) -> None:
    import transformers

    kind = {"Gemma2ForCausalLM": "gemma2", "Gemma3ForCausalLM": "gemma3_text"}
    truth = transformers.AutoConfig.for_model(kind[values["architectures"][0]], **SIZES)
    dialect = find_family(Fields(Path("config.json"), values), FAMILIES).hugging_face
    ropes = ("rope_theta", "rope_local_base_freq", "sliding_window_pattern")
    for key, value in dialect.defaults.items():
        if key not in ropes:
            assert getattr(truth, key) == value, key
    assert read(values) == read(values | json.loads(truth.to_json_string()))


def test_the_scale_of_27b_is_stated_in_its_configuration() -> None:
    assert read(GEMMA3 | {"query_pre_attn_scalar": 168}).attention_scale == 1 / math.sqrt(168)


OLD = {
    "sliding_window": 1024,
    "sliding_window_pattern": 3,
    "rope_theta": 500_000.0,
    "rope_local_base_freq": 20_000.0,
    "rope_scaling": {"rope_type": "linear", "factor": 8.0},
}
NEW = {
    "sliding_window": 1024,
    "layer_types": [
        "full_attention" if i % 3 == 2 else "sliding_attention"
        for i in range(SIZES["num_hidden_layers"])
    ],
    "rope_parameters": {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 500_000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 20_000.0},
    },
}


def test_configurations_of_old_and_new_releases_say_the_same() -> None:
    old, new = read(GEMMA3 | OLD), read(GEMMA3 | NEW)
    assert old == new
    assert old.sliding_layers == (True, True, False, True, True, False, True)
    assert old.rope == Rope(500_000.0, 256, RopeScaling("linear", factor=8.0))
    assert old.local_rope == Rope(20_000.0, 256)
    assert old.layer_rope(2) == old.rope
    assert old.layer_rope(3) == old.local_rope
    assert [old.window(i) for i in (2, 3)] == [None, 1024]


def test_the_text_part_of_a_model_that_sees_is_read() -> None:
    outer = {"eos_token_id": [1, 106], "tie_word_embeddings": True, "vision_config": {}}
    config = read(SEES | outer | {"text_config": SIZES | OLD})
    assert config == replace(read(GEMMA3 | OLD), eos_token_ids=(1, 106))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (GEMMA2 | {"attention_bias": True}, r"attention_bias: is true, which is not supported"),
        (GEMMA3 | {"use_bidirectional_attention": True}, r"use_bidirectional_attention: is true"),
        (GEMMA3 | {"attn_logit_softcapping": 50.0}, r"attn_logit_softcapping: is 50; Gemma 3 has"),
        (GEMMA2 | {"hidden_activation": None}, r"hidden_activation: stands for silu"),
        (GEMMA2 | {"sliding_window": None}, r"sliding_window: is missing, though layers slide"),
        (GEMMA2 | {"query_pre_attn_scalar": 0}, r"query_pre_attn_scalar: is 0, outside"),
        (GEMMA2 | {"final_logit_softcapping": -1}, r"final_logit_softcapping: is -1, outside"),
        (GEMMA3 | {"sliding_window_pattern": 0}, r"sliding_window_pattern: is 0, outside"),
        (GEMMA3 | {"layer_types": ["full_attention"]}, r"layer_types: must be a list of 7 names"),
        (
            GEMMA3 | {"rope_parameters": {"full_attention": {"rope_type": "default"}}},
            r"rope_parameters\.full_attention\.rope_theta: is missing",
        ),
        (SEES | {"text_config": []}, r"text_config: must be an object, not a list"),
        (SEES | {"text_config": SIZES | {"head_dim": 7}}, r"text_config\.head_dim: is 7; an even"),
        (SEES | {"text_config": {}}, r"hidden_size: is missing"),
    ],
)
def test_what_the_program_does_not_do_is_refused_by_name(
    values: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelFormatError, match=r"^config\.json: " + message):
        read(values)


def test_a_cap_of_zero_is_no_cap() -> None:
    config = read(GEMMA2 | {"attn_logit_softcapping": 0.0, "final_logit_softcapping": None})
    assert (config.attention_softcap, config.logit_softcap) == (None, None)


@pytest.mark.parametrize("prefixes", [("language_model.", ""), ("", "model.language_model.")])
def test_a_model_that_sees_has_the_bits_of_its_text_model(
    prefixes: tuple[str, str], tmp_path: Path
) -> None:
    text = make_model(KINDS["gemma3-capped"], tmp_path / "text")
    whole = tmp_path / "whole"
    whole.mkdir()
    outer, inner = prefixes
    tensors = {
        (
            inner + name.removeprefix("model.")
            if inner and name.startswith("model.")
            else outer + name
        ): values
        for name, values in safetensors.numpy.load_file(text / "model.safetensors").items()
    }
    eye = {"vision_tower.x.weight": np.ones(3, np.float32)}
    eye["multi_modal_projector.mm_soft_emb_norm.weight"] = np.ones(3, np.float32)
    safetensors.numpy.save_file(tensors | eye, whole / "model.safetensors")
    config = json.loads((text / "config.json").read_text())
    (whole / "config.json").write_text(json.dumps(SEES | {"text_config": config}))
    tokens = np.random.default_rng(3).integers(0, KINDS["gemma3-capped"].vocab_size, 40).tolist()
    assert_same_bits(
        NativeModel(whole).run().logits(tokens), NativeModel(text).run().logits(tokens)
    )


LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
WHOLE_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}


def gguf_name(name: str) -> str:
    if name in WHOLE_NAMES:
        return WHOLE_NAMES[name]
    _, _, index, part = name.removesuffix(".weight").split(".", 3)
    return f"blk.{index}.{LAYER_NAMES[part]}.weight"


def convert(builder: Any, directory: Path) -> Any:
    """A directory as a GGUF builder: keys, names and norms as llama.cpp's converter writes them."""
    c = json.loads((directory / "config.json").read_text())
    p = builder.architecture
    builder.keys = {
        f"{p}.block_count": c["num_hidden_layers"],
        f"{p}.context_length": c["max_position_embeddings"],
        f"{p}.embedding_length": c["hidden_size"],
        f"{p}.feed_forward_length": c["intermediate_size"],
        f"{p}.attention.head_count": c["num_attention_heads"],
        f"{p}.attention.head_count_kv": c["num_key_value_heads"],
        f"{p}.attention.key_length": c["head_dim"],
        f"{p}.attention.value_length": c["head_dim"],
        f"{p}.attention.layer_norm_rms_epsilon": (c["rms_norm_eps"], F32),
        f"{p}.attention.sliding_window": c["sliding_window"],
    }
    for name in ("attn_logit_softcapping", "final_logit_softcapping"):
        if c[name] is not None:
            builder.keys[f"{p}.{name}"] = (c[name], F32)
    rope = c["rope_parameters"].get("full_attention")
    if rope is not None:
        builder.keys[f"{p}.rope.freq_base"] = (rope["rope_theta"], F32)
        if "factor" in rope:
            builder.keys[f"{p}.rope.scaling.type"] = "linear"
            builder.keys[f"{p}.rope.scaling.factor"] = (rope["factor"], F32)
    builder.tensors = {
        gguf_name(name): values + 1 if name.endswith("norm.weight") else values
        for name, values in safetensors.numpy.load_file(directory / "model.safetensors").items()
    }
    return builder


# As GGUF can say them: scores scaled by the width of a head, and each architecture's own period.
CONVERTIBLE = {
    "gemma2": replace(KINDS["gemma2"], attention_scale=1 / math.sqrt(32)),
    "gemma3": replace(
        KINDS["gemma3"],
        num_layers=7,
        sliding_layers=(True,) * 5 + (False, True),
        attention_scale=1 / math.sqrt(32),
    ),
    "gemma3 untied": replace(
        KINDS["gemma3-capped"],
        num_layers=6,
        sliding_layers=(True,) * 5 + (False,),
        attention_scale=1 / math.sqrt(32),
    ),
}


@pytest.mark.parametrize("name", CONVERTIBLE)
def test_a_converted_model_has_the_configuration_and_bits_of_the_directory(
    name: str, gguf_builder: Callable[..., Any], tmp_path: Path
) -> None:
    config = CONVERTIBLE[name]
    directory = make_model(config, tmp_path / "model")
    file = convert(gguf_builder(config.architecture), directory).write(tmp_path / "a.gguf")
    ours, truth = NativeModel(file), NativeModel(directory)
    assert truth.config == config
    assert ours.config == replace(config, bos_token_id=None, eos_token_ids=())
    tokens = np.random.default_rng(3).integers(0, config.vocab_size, 60).tolist()
    assert_same_bits(ours.run().logits(tokens), truth.run().logits(tokens))


def gguf_config(builder: Any, path: Path, **keys: Any) -> ModelConfig:
    p = builder.architecture
    builder.keys |= {f"{p}.{key.replace('__', '.')}": value for key, value in keys.items()}
    return open_checkpoint(builder.write(path), FAMILIES).config


@pytest.mark.parametrize(
    ("architecture", "num_layers", "scale"),
    [
        ("gemma2", 42, 1 / math.sqrt(8)),
        ("gemma2", 46, 1 / 2),
        ("gemma3", 48, 1 / math.sqrt(8)),
        ("gemma3", 62, 1 / 2),
    ],
)
def test_27b_scales_scores_by_the_width_of_the_model_over_its_heads(
    architecture: str, num_layers: int, scale: float, gguf_builder: Any, tmp_path: Path
) -> None:
    config = gguf_config(
        gguf_builder(architecture),
        tmp_path / "a.gguf",
        block_count=num_layers,
        attention__key_length=8,
        attention__value_length=8,
    )
    assert (config.hidden_size, config.num_heads) == (16, 4)
    assert config.attention_scale == scale


@pytest.mark.parametrize(("architecture", "num_layers"), [("gemma2", 46), ("gemma3", 62)])
def test_27b_with_more_heads_than_width_is_refused(
    architecture: str, num_layers: int, gguf_builder: Any, tmp_path: Path
) -> None:
    """The scale of its scores would be a division by zero."""
    with pytest.raises(ModelFormatError, match="more than the embedding length") as caught:
        gguf_config(
            gguf_builder(architecture),
            tmp_path / "a.gguf",
            block_count=num_layers,
            embedding_length=2,
            attention__key_length=8,
            attention__value_length=8,
        )
    assert caught.value.field == f"{architecture}.attention.head_count"
    assert caught.value.offset is not None


def test_a_gguf_gemma_2_slides_in_every_other_layer(gguf_builder: Any, tmp_path: Path) -> None:
    config = gguf_config(gguf_builder("gemma2"), tmp_path / "a.gguf", block_count=3)
    assert (config.sliding_window, config.sliding_layers) == (4096, (True, False, True))
    assert (config.rope, config.local_rope) == (Rope(10_000.0, 4), None)
    assert (config.attention_softcap, config.logit_softcap) == (50.0, 30.0)


def test_a_gguf_gemma_3_without_window_slides_nowhere(gguf_builder: Any, tmp_path: Path) -> None:
    builder = gguf_builder("gemma3")
    for keys in ({}, {"attention__sliding_window": 0}):
        config = gguf_config(builder, tmp_path / "a.gguf", block_count=8, **keys)
        assert (config.sliding_window, config.local_rope) == (None, None)
        assert all(config.window(i) is None for i in range(8))


@pytest.mark.parametrize(
    ("pattern", "sliding"),
    [
        (3, (True, True, False, True)),
        (1, (False,) * 4),
        (0, (True,) * 4),
        ([True, False, False, True], (True, False, False, True)),
        ([0, 1, 1, 0], (False, True, True, False)),
    ],
)
def test_the_pattern_of_sliding_layers_is_a_period_or_a_list(
    pattern: Any, sliding: tuple[bool, ...], gguf_builder: Any, tmp_path: Path
) -> None:
    config = gguf_config(
        gguf_builder("gemma3"),
        tmp_path / "a.gguf",
        block_count=4,
        attention__sliding_window=512,
        attention__sliding_window_pattern=pattern,
        rope__freq_base_swa=20_000.0,
    )
    assert config.sliding_layers == sliding
    assert config.local_rope == Rope(20_000.0, 4)


def test_a_cap_of_scores_in_a_gguf_gemma_3_is_refused(gguf_builder: Any, tmp_path: Path) -> None:
    with pytest.raises(
        ModelFormatError, match=r"gemma3\.attn_logit_softcapping .* Gemma 3 has none"
    ):
        gguf_config(gguf_builder("gemma3"), tmp_path / "a.gguf", attn_logit_softcapping=50.0)


def test_a_pattern_for_other_layers_is_refused(gguf_builder: Any, tmp_path: Path) -> None:
    with pytest.raises(ModelFormatError, match=r"_pattern .* has 3 elements for 4 layers"):
        gguf_config(
            gguf_builder("gemma3"),
            tmp_path / "a.gguf",
            block_count=4,
            attention__sliding_window=512,
            attention__sliding_window_pattern=[True, False, True],
        )
