"""Hugging Face directories as checkpoints: configuration, shards, tokenizer, template."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch

from farthing.config import ModelConfig, Rope, RopeScaling
from farthing.errors import (
    FarthingError,
    ModelFormatError,
    ModelNotFoundError,
    UnsupportedArchitectureError,
)
from farthing.models.checkpoint import Checkpoint, open_checkpoint
from farthing.models.registry import FAMILIES, find_family
from farthing.tokenization.source import JsonTokenizerFile

Save = Callable[..., tuple[Any, Path]]
INDEX = "model.safetensors.index.json"
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 20,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
}
LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}


def open_directory(path: Path) -> Checkpoint:
    return open_checkpoint(path, FAMILIES)


def write(path: Path, config: dict[str, Any], generation: dict[str, Any] | None = None) -> Path:
    """A directory with that config.json and one tensor."""
    (path / "config.json").write_text(json.dumps(config))
    if generation is not None:
        (path / "generation_config.json").write_text(json.dumps(generation))
    safetensors.numpy.save_file({"t": np.zeros(4, np.float32)}, path / "model.safetensors")
    return path


def config_of(path: Path, **changes: Any) -> ModelConfig:
    """The configuration of ``CONFIG`` with changes; ``None`` deletes a key."""
    config = {key: value for key, value in (CONFIG | changes).items() if value is not None}
    return open_directory(write(path, config)).config


@pytest.mark.parametrize(
    ("architecture", "config", "scaling"),
    [
        ("llama", {}, None),
        ("llama", {"head_dim": 12, "attention_bias": True, "tie_word_embeddings": True}, None),
        (
            "llama",
            {"rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5} | LLAMA3},
            RopeScaling("llama3", 8.0, 1.0, 4.0, 32),
        ),
        (
            "qwen2",
            {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e6}},
            RopeScaling("linear", 4.0),
        ),
        ("qwen2", {"eos_token_id": [5, 6], "bos_token_id": 7}, None),
    ],
    ids=["llama", "llama other", "llama3 rope", "qwen2 linear rope", "qwen2 ends"],
)
def test_a_saved_model_is_read_as_transformers_has_it(
    architecture: str, config: dict[str, Any], scaling: RopeScaling | None, save_tiny: Save
) -> None:
    model, path = save_tiny(architecture, **config)
    checkpoint = open_directory(path)
    theirs, ours = model.config, checkpoint.config
    assert checkpoint.format == "huggingface"
    assert ours.architecture == architecture
    assert ours.num_layers == theirs.num_hidden_layers
    assert ours.hidden_size == theirs.hidden_size
    assert ours.intermediate_size == theirs.intermediate_size
    assert (ours.num_heads, ours.num_kv_heads) == (6, 2)
    assert ours.head_dim == model.model.layers[0].self_attn.head_dim
    assert ours.vocab_size == theirs.vocab_size
    assert ours.context_length == theirs.max_position_embeddings
    assert ours.rms_norm_eps == theirs.rms_norm_eps
    assert ours.rope == Rope(theirs.rope_parameters["rope_theta"], ours.head_dim, scaling)
    assert ours.attention_bias == (model.model.layers[0].self_attn.q_proj.bias is not None)
    assert ours.tie_word_embeddings == theirs.tie_word_embeddings
    assert ours.bos_token_id == theirs.bos_token_id
    ends = theirs.eos_token_id
    expected = ends if isinstance(ends, list) else [id_ for id_ in [ends] if id_ is not None]
    assert list(ours.eos_token_ids) == expected
    saved = {n: t for n, t in model.state_dict().items()
             if n != "lm_head.weight" or not ours.tie_word_embeddings}  # fmt: skip
    assert set(checkpoint.tensors) == set(saved)
    for name, tensor in saved.items():
        np.testing.assert_array_equal(checkpoint.tensors[name].dequantize(), tensor.numpy(), name)


@pytest.mark.parametrize(("dtype", "stored"), [("float16", "f16"), ("bfloat16", "bf16")])
def test_half_precision_is_kept_as_it_is(dtype: str, stored: str, save_tiny: Save) -> None:
    model, path = save_tiny("qwen2", dtype=dtype)
    checkpoint = open_directory(path)
    assert checkpoint.bytes_by_dtype() == {stored: checkpoint.nbytes}
    for name, tensor in model.state_dict().items():
        ours = checkpoint.tensors[name]
        assert ours.read_rows(0, ours.rows).tobytes() == tensor.view(torch.uint8).numpy().tobytes()
        np.testing.assert_array_equal(ours.dequantize(), tensor.float().numpy())


@pytest.fixture
def sharded(save_tiny: Save, tmp_path: Path) -> tuple[Any, Path]:
    """A model in several files that a test may damage."""
    model, path = save_tiny("llama", shards="40KB")
    shutil.copytree(path, tmp_path / "sharded")
    return model, tmp_path / "sharded"


def shard_names(path: Path) -> list[str]:
    return sorted(item.name for item in path.glob("model-*.safetensors"))


@pytest.mark.parametrize("indexed", [True, False])
def test_shards_are_one_model(indexed: bool, sharded: tuple[Any, Path]) -> None:
    model, path = sharded
    assert len(shard_names(path)) > 2
    if not indexed:
        (path / INDEX).unlink()
    checkpoint = open_directory(path)
    assert len({tensor.file for tensor in checkpoint.tensors.values()}) == len(shard_names(path))
    for name, tensor in model.state_dict().items():
        np.testing.assert_array_equal(checkpoint.tensors[name].dequantize(), tensor.numpy())


@pytest.mark.parametrize("indexed", [True, False])
def test_a_missing_shard_is_named(indexed: bool, sharded: tuple[Any, Path]) -> None:
    _, path = sharded
    names = shard_names(path)
    (path / names[1]).unlink()
    if not indexed:
        (path / INDEX).unlink()
    with pytest.raises(ModelFormatError, match=names[1] if indexed else "there are") as caught:
        open_directory(path)
    assert caught.value.file == (path / names[1] if indexed else path)


def test_a_broken_link_to_a_shard_is_named(sharded: tuple[Any, Path]) -> None:
    _, path = sharded
    shard = path / shard_names(path)[0]
    shard.unlink()
    shard.symlink_to(path / "blob")
    with pytest.raises(ModelFormatError, match="link to a file that does not exist"):
        open_directory(path)


def test_a_tensor_in_two_shards_is_a_duplicate(sharded: tuple[Any, Path]) -> None:
    _, path = sharded
    first, second, *_ = shard_names(path)
    tensors = safetensors.numpy.load_file(path / second)
    twice = next(iter(safetensors.numpy.load_file(path / first)))
    tensors[twice] = np.zeros(4, np.float32)
    safetensors.numpy.save_file(tensors, path / second)
    with pytest.raises(ModelFormatError, match=f"duplicate: it is in {first}") as caught:
        open_directory(path)
    assert (caught.value.file, caught.value.field) == (path / second, f"tensor {twice}")


def change_index(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    index = json.loads((path / INDEX).read_text())
    change(index)
    (path / INDEX).write_text(json.dumps(index))


@pytest.mark.parametrize(
    ("change", "field", "problem"),
    [
        (lambda i: i["weight_map"].update(x=next(iter(i["weight_map"].values()))), "tensor x",
         "is missing"),
        (lambda i: i["weight_map"].pop("model.norm.weight"), "tensor model.norm.weight",
         "is not listed"),
        (lambda i: i["weight_map"].update(x="../secret.safetensors"), "weight_map.x",
         "not a file name"),
        (lambda i: i["weight_map"].update(x="/etc/passwd"), "weight_map.x", "not a file name"),
        (lambda i: i["weight_map"].update(x="config.json"), "weight_map.x", "not a file name"),
        (lambda i: i["weight_map"].update(x=3), "weight_map.x", "not a file name"),
        (lambda i: i.pop("weight_map"), "weight_map", "must be an object"),
        (lambda i: i.update(weight_map={}), "weight_map", "not empty"),
    ],
    ids=["in no shard", "in no index", "parent", "absolute", "other kind", "number", "none",
         "empty"],
)  # fmt: skip
def test_an_index_that_is_wrong_is_refused(
    change: Callable[[dict[str, Any]], Any], field: str, problem: str, sharded: tuple[Any, Path]
) -> None:
    _, path = sharded
    change_index(path, change)
    with pytest.raises(ModelFormatError, match=problem) as caught:
        open_directory(path)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("changes", "rope"),
    [
        ({}, Rope(10000.0, 4)),
        ({"rope_theta": 500000}, Rope(5e5, 4)),
        ({"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2}},
         Rope(5e5, 4, RopeScaling("linear", 2.0))),
        ({"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3"} | LLAMA3},
         Rope(5e5, 4, RopeScaling("llama3", 8.0, 1.0, 4.0, 32))),
        ({"rope_scaling": {"rope_type": "default"}}, Rope(10000.0, 4)),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 7.0}, "rope_theta": 9.0},
         Rope(7.0, 4)),
        ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 1.0}},
         Rope(10000.0, 4)),
    ],
    ids=str,
)  # fmt: skip
def test_rope_of_old_and_new_configurations(
    changes: dict[str, Any], rope: Rope, tmp_path: Path
) -> None:
    assert config_of(tmp_path, **changes).rope == rope


def test_end_tokens_of_the_generation_configuration_win(tmp_path: Path) -> None:
    config = CONFIG | {"eos_token_id": 3}
    assert open_directory(write(tmp_path, config)).config.eos_token_ids == (3,)
    both = write(tmp_path, config, {"eos_token_id": [5, 3, 5]})
    assert open_directory(both).config.eos_token_ids == (5, 3)
    silent = write(tmp_path, config, {"temperature": 0.5})
    assert open_directory(silent).config.eos_token_ids == (3,)


def test_defaults_of_a_short_configuration(tmp_path: Path) -> None:
    config = config_of(tmp_path, architectures=None, model_type="qwen2", num_key_value_heads=None)
    assert (config.architecture, config.num_kv_heads, config.head_dim) == ("qwen2", 4, 4)
    assert (config.attention_bias, config.tie_word_embeddings) == (True, False)
    assert (config.bos_token_id, config.eos_token_ids) == (None, ())


BAD_CONFIGS: list[tuple[dict[str, Any], str, str]] = [
    ({"num_hidden_layers": 2**31}, "num_hidden_layers", "outside 1 to"),
    ({"num_hidden_layers": None}, "num_hidden_layers", "is missing"),
    ({"num_hidden_layers": "2"}, "num_hidden_layers", "must be an integer, not '2'"),
    ({"hidden_size": 10**40}, "hidden_size", "integer of 133 bits"),
    ({"num_attention_heads": 0}, "num_attention_heads", "is 0"),
    ({"num_attention_heads": 6}, "num_attention_heads", "does not divide"),
    ({"num_key_value_heads": 8}, "num_key_value_heads", "does not divide"),
    ({"num_key_value_heads": 3}, "num_key_value_heads", "does not divide"),
    ({"head_dim": 5}, "head_dim", "even"),
    ({"vocab_size": 0}, "vocab_size", "is 0"),
    ({"rms_norm_eps": -1.0}, "rms_norm_eps", "outside"),
    ({"rms_norm_eps": 10**400}, "rms_norm_eps", "an integer of 1329 bits"),
    ({"rope_theta": -5}, "rope_theta", "outside"),
    ({"rope_theta": "big"}, "rope_theta", "must be a number"),
    ({"rope_parameters": {"rope_type": "proportional"}}, "rope_parameters.rope_type",
     "'proportional' is not supported"),
    ({"rope_scaling": {"rope_type": "yarn", "factor": float("1e300")}}, "rope_scaling.factor",
     "outside"),
    ({"rope_scaling": {"rope_type": "yarn", "beta_fast": 1}}, "rope_scaling.beta_fast", "above"),
    ({"rope_scaling": {"rope_type": "longrope"}}, "rope_scaling.long_factor", "is missing"),
    ({"rope_scaling": {"type": "su", "long_factor": [1.0]}}, "rope_scaling.long_factor",
     "a list of 2 numbers, is 1"),
    ({"rope_scaling": {"type": "longrope", "long_factor": [1.0, "x"]}},
     "rope_scaling.long_factor[1]", "must be a number"),
    ({"rope_scaling": {"type": "dynamic"}}, "rope_scaling.type", "'dynamic'"),
    ({"rope_scaling": {"type": "linear"}}, "rope_scaling.factor", "is missing"),
    ({"rope_scaling": [1]}, "rope_scaling", "must be an object"),
    ({"rope_scaling": {"rope_type": "llama3"} | LLAMA3 | {"low_freq_factor": 4.0}},
     "rope_scaling.high_freq_factor", "not above"),
    ({"rope_parameters": {"chunked_attention": {"rope_theta": 1.0}}},
     "rope_parameters.chunked_attention", "by layer type"),
    ({"rope_parameters": {"sliding_attention": {"rope_theta": 1.0}}},
     "rope_parameters.full_attention", "is missing"),
    ({"partial_rotary_factor": 0.5}, "partial_rotary_factor", "rotates whole heads"),
    ({"hidden_act": "gelu"}, "hidden_act", "'gelu'"),
    ({"mlp_bias": 1}, "mlp_bias", "true or false"),
    ({"quantization_config": {"quant_method": "awq"}}, "quantization_config", "'awq'"),
    ({"architectures": ["Qwen2ForCausalLM"], "use_sliding_window": True, "sliding_window": 0},
     "sliding_window", "is 0"),
    ({"architectures": ["Qwen2ForCausalLM"], "use_sliding_window": True, "sliding_window": 8,
      "max_window_layers": -1}, "max_window_layers", "is -1"),
    ({"architectures": ["Qwen2ForCausalLM"], "use_sliding_window": True, "sliding_window": 8,
      "layer_types": ["full_attention"] * 9}, "layer_types", "one for each layer"),
    ({"tie_word_embeddings": "yes"}, "tie_word_embeddings", "true or false"),
    ({"eos_token_id": 20}, "eos_token_id", "is 20"),
    ({"eos_token_id": [1, -1]}, "eos_token_id[1]", "is -1"),
    ({"bos_token_id": True}, "bos_token_id", "not True"),
    ({"architectures": []}, "architectures", "one class name"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "field", "problem"), BAD_CONFIGS, ids=str)
def test_impossible_configuration_is_refused_naming_the_key(
    changes: dict[str, Any], field: str, problem: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelFormatError) as caught:
        config_of(tmp_path, **changes)
    assert (caught.value.file, caught.value.field) == (tmp_path / "config.json", field)
    assert problem in str(caught.value)


def test_unsupported_architecture_is_named_with_the_supported(tmp_path: Path) -> None:
    with pytest.raises(
        UnsupportedArchitectureError,
        match=r"'MambaForCausalLM' .*supported: .*LlamaForCausalLM.* Qwen2ForCausalLM",
    ):
        config_of(tmp_path, architectures=["MambaForCausalLM"])
    with pytest.raises(UnsupportedArchitectureError, match=r"supported: Qwen2ForCausalLM$"):
        open_checkpoint(write(tmp_path, CONFIG), [find_family("qwen2")])


def test_a_configuration_that_is_not_json_is_refused(tmp_path: Path) -> None:
    write(tmp_path, CONFIG)
    (tmp_path / "config.json").write_text('{"hidden_size": 16,')
    with pytest.raises(ModelFormatError, match="is not JSON"):
        open_directory(tmp_path)
    (tmp_path / "config.json").write_text('{"hidden_size": 16, "hidden_size": 32}')
    with pytest.raises(ModelFormatError, match="duplicate key 'hidden_size'"):
        open_directory(tmp_path)


def test_weights_of_other_dtypes_are_refused(tmp_path: Path) -> None:
    write(tmp_path, CONFIG)
    safetensors.numpy.save_file({"t": np.zeros(4, np.int8)}, tmp_path / "model.safetensors")
    with pytest.raises(ModelFormatError, match="dtype I8 is not supported yet") as caught:
        open_directory(tmp_path)
    assert caught.value.field == "tensor t"


def test_a_directory_without_model_says_what_is_there(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"has no config\.json"):
        open_directory(tmp_path)
    (tmp_path / "small.gguf").write_bytes(b"")
    with pytest.raises(ModelNotFoundError, match=f"name the file: {tmp_path / 'small.gguf'}"):
        open_directory(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    with pytest.raises(ModelNotFoundError, match=r"has neither model\.safetensors nor"):
        open_directory(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(ModelNotFoundError, match=r"pytorch_model\.bin is not read"):
        open_directory(tmp_path)


def test_tokenizer_is_a_path_and_its_configuration(tmp_path: Path) -> None:
    write(tmp_path, CONFIG)
    assert open_directory(tmp_path).tokenizer is None
    (tmp_path / "tokenizer.json").write_text("{}")
    assert open_directory(tmp_path).tokenizer == JsonTokenizerFile(
        tmp_path / "tokenizer.json", {}, open_directory(tmp_path).config.eos_token_ids
    )
    (tmp_path / "tokenizer_config.json").write_text('{"add_bos_token": true}')
    tokenizer = open_directory(tmp_path).tokenizer
    assert isinstance(tokenizer, JsonTokenizerFile)
    assert dict(tokenizer.config) == {"add_bos_token": True}


def test_chat_template_is_found_where_it_may_be(tmp_path: Path) -> None:
    write(tmp_path, CONFIG)
    assert open_directory(tmp_path).chat_template is None

    def configure(template: object) -> None:
        text = json.dumps({"chat_template": template})
        (tmp_path / "tokenizer_config.json").write_text(text)

    configure("plain")
    assert open_directory(tmp_path).chat_template == "plain"
    configure([{"name": "tool_use", "template": "x"}, {"name": "default", "template": "named"}])
    assert open_directory(tmp_path).chat_template == "named"
    configure(5)
    with pytest.raises(ModelFormatError, match="chat_template: must be a string"):
        open_directory(tmp_path)
    configure("plain")
    (tmp_path / "chat_template.jinja").write_text("é file")
    assert open_directory(tmp_path).chat_template == "é file"
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(FarthingError, match="not UTF-8"):
        open_directory(tmp_path)
