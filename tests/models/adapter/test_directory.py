"""Adapter directories: what is in one, and one line for everything that is wrong with it."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from safetensors.numpy import save_file

from farthing.errors import FarthingError, ModelFormatError, ModelNotFoundError
from farthing.models.adapter import open_adapter
from farthing.models.checkpoint import open_checkpoint
from farthing.models.registry import FAMILIES

WEIGHTS = "adapter_model.safetensors"
Q = "base_model.model.model.layers.0.self_attn.q_proj.lora_"


def test_a_directory_is_described_without_reading_weights(builder: Any, tmp_path: Path) -> None:
    adapter = open_adapter(builder.write(tmp_path))
    assert [pair.module for pair in adapter.pairs] == [
        "model.layers.0.mlp.down_proj",
        "model.layers.0.self_attn.q_proj",
    ]
    assert adapter.targets == ("down_proj", "q_proj")
    assert adapter.ranks == (2,)
    assert adapter.parameters == 2 * (8 + 16 + 16 + 24)
    assert adapter.nbytes == 4 * adapter.parameters


def drop(name: str) -> Callable[[Any], None]:
    return lambda builder: builder.tensors.pop(name)


def put(name: str, values: np.ndarray) -> Callable[[Any], None]:
    return lambda builder: builder.tensors.__setitem__(name, values)


ZEROS = np.zeros((2, 16), np.float32)


@pytest.mark.parametrize(
    ("change", "field", "says"),
    [
        (drop(f"{Q}A.weight"), f"{Q}B.weight", "lora_A of the same module is missing"),
        (drop(f"{Q}B.weight"), f"{Q}A.weight", "lora_B of the same module is missing"),
        (put(f"{Q}A.weight", np.zeros((0, 16), np.float32)), f"{Q}A.weight", "rank 0"),
        (put(f"{Q}A.weight", np.zeros((5000, 1), np.float32)), f"{Q}A.weight", "rank 5000"),
        (put(f"{Q}A.weight", np.zeros((3, 16), np.float32)), f"{Q}B.weight", "has rank 3"),
        (put(f"{Q}A.weight", np.zeros(16, np.float32)), f"{Q}A.weight", "a matrix is needed"),
        (put(f"{Q}A.weight", np.zeros((2, 16), np.int8)), f"{Q}A.weight", "I8 is not supported"),
        (put("x.weight", ZEROS), "x.weight", "not a factor of a LoRA adapter"),
        (put("model.layers.0.mlp.up_proj.lora_A.weight", ZEROS), None, "not a factor"),
        (put(f"{Q}A.default.weight", ZEROS), None, "not a factor"),
        (put(f"{Q}magnitude_vector", ZEROS), None, "DoRA"),
        (put(f"{Q}B.bias", ZEROS), None, "a bias"),
        (put("base_model.model.model.embed_tokens.lora_embedding_A", ZEROS), None, "embeddings"),
        (put("base_model.model.lm_head.modules_to_save.weight", ZEROS), None, "whole modules"),
        (put("base_model.model.lm_head.base_layer.weight", ZEROS), None, "save_embedding_layers"),
        (
            put("base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta", ZEROS),
            None,
            "token embeddings",
        ),
        (lambda builder: builder.tensors.clear(), None, "no tensors"),
    ],
)
def test_tensors_that_do_not_belong_are_named(
    builder: Any, tmp_path: Path, change: Callable[[Any], None], field: str | None, says: str
) -> None:
    change(builder)
    with pytest.raises(ModelFormatError, match=says) as caught:
        open_adapter(builder.write(tmp_path))
    assert caught.value.file == tmp_path / WEIGHTS
    assert field is None or caught.value.field == f"tensor {field}"
    assert "\n" not in str(caught.value)


def test_a_pickle_is_not_opened(builder: Any, tmp_path: Path) -> None:
    builder.write(tmp_path)
    (tmp_path / WEIGHTS).rename(tmp_path / "elsewhere")
    with pytest.raises(ModelNotFoundError, match=WEIGHTS):
        open_adapter(tmp_path)
    (tmp_path / "adapter_model.bin").write_bytes(pickle.dumps({}))
    with pytest.raises(ModelFormatError, match=r"adapter_model\.bin: is a pickle, .* run code"):
        open_adapter(tmp_path)


def test_paths_that_are_no_adapter_say_what_they_are(builder: Any, tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="nowhere: no such adapter directory"):
        open_adapter(tmp_path / "nowhere")
    with pytest.raises(ModelNotFoundError, match=r"has no adapter_config\.json"):
        open_adapter(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelNotFoundError, match="not an adapter directory but a model's"):
        open_adapter(tmp_path)
    directory = builder.write(tmp_path / "adapter")
    with pytest.raises(ModelFormatError, match="name the directory"):
        open_adapter(directory / WEIGHTS)
    (tmp_path / "x.gguf").touch()
    with pytest.raises(ModelFormatError, match=r"x\.gguf: adapters in GGUF files .* as peft saves"):
        open_adapter(tmp_path / "x.gguf")


def test_an_adapter_in_place_of_a_model_says_what_to_do(builder: Any, tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"but an adapter; .* with --adapter"):
        open_checkpoint(builder.write(tmp_path / "peft"), FAMILIES)
    writer = gguf.GGUFWriter(tmp_path / "lora.gguf", "llama")
    writer.add_type(gguf.GGUFType.ADAPTER)
    writer.add_tensor("blk.0.attn_q.weight.lora_a", np.zeros((2, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ModelFormatError, match=r"general\.type.*'adapter'.*as peft saves it"):
        open_checkpoint(tmp_path / "lora.gguf", FAMILIES)


@pytest.mark.parametrize("keep", [0, 7, 8, 40, -1])
def test_a_cut_file_is_refused(builder: Any, tmp_path: Path, keep: int) -> None:
    file = builder.write(tmp_path) / WEIGHTS
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(ModelFormatError):
        open_adapter(tmp_path)


def test_a_link_that_leads_nowhere_is_an_error(builder: Any, tmp_path: Path) -> None:
    file = builder.write(tmp_path) / WEIGHTS
    file.unlink()
    file.symlink_to(tmp_path / "nowhere")
    with pytest.raises(ModelNotFoundError, match=WEIGHTS):
        open_adapter(tmp_path)


def test_names_of_any_length_stay_short_in_the_message(builder: Any, tmp_path: Path) -> None:
    save_file({"x" * 100_000: ZEROS}, builder.write(tmp_path) / WEIGHTS)
    with pytest.raises(ModelFormatError) as caught:
        open_adapter(tmp_path)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("name", ["adapter_config.json", WEIGHTS])
def test_damage_anywhere_is_an_error_of_ours_or_harmless(
    builder: Any, tmp_path: Path, name: str
) -> None:
    builder.config |= {"rank_pattern": {"q_proj": 2}, "alpha_pattern": {r"mlp\..*": 3.5}}
    file = builder.write(tmp_path) / name
    whole = file.read_bytes()
    rng = np.random.default_rng(11)
    refused = 0
    for _ in range(400):
        damaged = bytearray(whole)
        header = min(len(whole), 600)  # the rest is values
        for place in rng.integers(0, header, rng.integers(1, 4)):
            damaged[place] = rng.integers(256) if rng.random() < 0.5 else rng.choice(list(whole))
        file.write_bytes(damaged)
        try:
            adapter = open_adapter(tmp_path)
            assert all(adapter.config.rank_of(pair.module) > 0 for pair in adapter.pairs)
        except FarthingError:
            refused += 1
    assert 200 < refused < 400
