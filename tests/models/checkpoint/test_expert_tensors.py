"""Mixtures of experts in checkpoints: what is read, what is cut, what is refused by name."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from farthing.config import Experts
from farthing.errors import ModelFormatError, UnsupportedArchitectureError
from farthing.models.checkpoint import Checkpoint, check_tensors, limits, open_checkpoint
from farthing.models.registry import FAMILIES, build_program
from support.moe_gguf import write_moe_gguf
from support.tiny_models import KINDS, make_tiny_model

U32, F32 = gguf.GGUFValueType.UINT32, gguf.GGUFValueType.FLOAT32
EXPERT = "model.layers.1.mlp.experts.6.up_proj.weight"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return make_tiny_model("qwen3-moe", tmp_path / "tiny")


def change(directory: Path, **changes: object) -> Checkpoint:
    """Opens the directory with keys of ``config.json`` changed, or removed where None."""
    path = directory / "config.json"
    config = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({k: v for k, v in config.items() if v is not None}))
    return open_checkpoint(directory, FAMILIES)


def change_gguf(
    directory: Path,
    keys: dict[str, tuple[object, gguf.GGUFValueType]] | None = None,
    stacks: dict[str, tuple[int, ...]] | None = None,
) -> Checkpoint:
    """The model as GGUF, with keys added and tensors replaced by zeros of other shapes."""
    plain = write_moe_gguf(directory, directory / "plain.gguf")
    reader = gguf.GGUFReader(plain)
    writer = gguf.GGUFWriter(directory / "changed.gguf", "qwen3moe")
    for name, field in reader.fields.items():
        if name.startswith("qwen3moe.") and name not in (keys or {}):
            writer.add_key_value(name, field.contents(), field.types[0])
    for name, (value, kind) in (keys or {}).items():
        if value is not None:
            writer.add_key_value(name, value, kind)
    for tensor in reader.tensors:
        shape = (stacks or {}).get(tensor.name)
        writer.add_tensor(
            tensor.name, tensor.data if shape is None else np.zeros(shape, np.float32)
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return open_checkpoint(directory / "changed.gguf", FAMILIES)


def test_names_of_both_releases_of_transformers_are_read(directory: Path) -> None:
    later = change(directory).config
    assert later == KINDS["qwen3-moe"]
    assert change(directory, num_local_experts=None, num_experts=8).config == later


@pytest.mark.parametrize(
    ("step", "listed", "dense"),
    [(1, [], ()), (1, [0, 2], (0, 2)), (2, [], (0, 2)), (2, [1], (0, 1, 2)), (3, [], (0, 1))],
)
def test_which_layers_have_experts(
    directory: Path, step: int, listed: list[int], dense: tuple[int, ...]
) -> None:
    config = change(directory, decoder_sparse_step=step, mlp_only_layers=listed).config
    assert config.experts is not None
    assert config.experts.dense_layers == dense
    assert [config.layer_experts(i) is None for i in range(3)] == [i in dense for i in range(3)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_local_experts": 0}, "num_local_experts: is 0, outside 1 to 1024"),
        ({"num_local_experts": 2000}, "num_local_experts: is 2000, outside 1 to 1024"),
        ({"num_local_experts": None}, "num_local_experts: is missing"),
        ({"num_experts_per_tok": 9}, "num_experts_per_tok: is 9, outside 1 to 8"),
        ({"num_experts_per_tok": 0}, "num_experts_per_tok: is 0, outside 1 to 8"),
        ({"moe_intermediate_size": None}, "moe_intermediate_size: is missing"),
        ({"decoder_sparse_step": 0}, "decoder_sparse_step: is 0"),
        ({"mlp_only_layers": ["0"]}, "mlp_only_layers: must be a list of layer numbers"),
        ({"mlp_only_layers": 0}, "mlp_only_layers: must be a list of layer numbers"),
        ({"mlp_only_layers": {}}, "mlp_only_layers: must be a list of layer numbers"),
        ({"mlp_only_layers": [-1]}, "mlp_only_layers: must be a list of layer numbers"),
        ({"mlp_only_layers": [2**70]}, "mlp_only_layers: must be a list of layer numbers"),
        ({"norm_topk_prob": 1}, "norm_topk_prob: must be true or false"),
        (
            {"shared_expert_intermediate_size": 64},
            "shared_expert_intermediate_size: says that there are shared experts",
        ),
        (
            {"num_local_experts": 1024, "num_hidden_layers": 17},
            "num_local_experts: is 1024, together 17408 experts in all layers, more than 16384",
        ),
    ],
)
def test_impossible_experts_are_refused_by_key(
    directory: Path, changes: dict[str, object], message: str
) -> None:
    field, problem = message.split(": ")
    with pytest.raises(ModelFormatError, match=re.escape(problem)) as caught:
        change(directory, **changes)
    assert (caught.value.file.name, caught.value.field) == ("config.json", field)


def test_shared_experts_are_refused_by_the_class_that_has_them(directory: Path) -> None:
    with pytest.raises(UnsupportedArchitectureError, match=r"Qwen2MoeForCausalLM.*Qwen3Moe"):
        change(directory, architectures=["Qwen2MoeForCausalLM"])


def test_a_missing_expert_is_named(directory: Path) -> None:
    file = directory / "model.safetensors"
    tensors = load_file(file)
    del tensors[EXPERT]
    save_file(tensors, file)
    checkpoint = open_checkpoint(directory, FAMILIES)
    with pytest.raises(ModelFormatError, match=rf"tensor {EXPERT}: is missing; .* \(64, 64\)"):
        check_tensors(checkpoint, build_program(checkpoint.config).weights)


def test_an_expert_too_many_is_named(directory: Path) -> None:
    checkpoint = change(directory, num_local_experts=7)
    message = r"tensor model.layers.0.mlp.gate.weight .*: has shape \(8, 64\) where \(7, 64\)"
    with pytest.raises(ModelFormatError, match=message):
        check_tensors(checkpoint, build_program(checkpoint.config).weights)


def test_an_expert_of_another_shape_is_named(directory: Path) -> None:
    file = directory / "model.safetensors"
    tensors = load_file(file)
    tensors[EXPERT] = tensors[EXPERT][:-1].copy()
    save_file(tensors, file)
    checkpoint = open_checkpoint(directory, FAMILIES)
    message = rf"tensor {EXPERT} .*: has shape \(63, 64\) where \(64, 64\) is needed"
    with pytest.raises(ModelFormatError, match=message):
        check_tensors(checkpoint, build_program(checkpoint.config).weights)


def test_a_gguf_file_has_the_tensors_of_the_directory(directory: Path) -> None:
    one, other = open_checkpoint(directory, FAMILIES), change_gguf(directory)
    assert other.config == replace(one.config, bos_token_id=None, eos_token_ids=())
    assert set(one.tensors) == set(other.tensors)
    check_tensors(other, build_program(other.config).weights)
    for name, tensor in one.tensors.items():
        assert np.array_equal(tensor.dequantize(), other.tensors[name].dequantize()), name
    assert other.nbytes == one.nbytes
    assert other.tensors[EXPERT].name == "blk.1.ffn_up_exps.weight"


def test_gguf_numbers_that_are_not_said(directory: Path) -> None:
    absent: dict[str, Any] = {"qwen3moe.expert_feed_forward_length": (None, U32)}
    experts = change_gguf(directory, absent).config.experts
    assert experts == Experts(8, 2, 176 // 2, normalize=True)
    norm: dict[str, Any] = {"qwen3moe.expert_weights_norm": (False, gguf.GGUFValueType.BOOL)}
    assert change_gguf(directory, norm).config.experts == Experts(8, 2, 64, normalize=False)
    neutral: dict[str, Any] = {
        "qwen3moe.expert_shared_count": (0, U32),
        "qwen3moe.expert_gating_func": (1, U32),
        "qwen3moe.expert_weights_scale": (1.0, F32),
    }
    assert change_gguf(directory, neutral).config.experts == Experts(8, 2, 64, normalize=True)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("expert_count", 0, "is 0, outside 1 to 1024"),
        ("expert_count", 1 << 31, f"is {1 << 31}, outside 1 to 1024"),
        ("expert_count", None, "is missing"),
        ("expert_used_count", 9, "is 9, outside 1 to 8"),
        ("expert_feed_forward_length", 0, "is 0, outside 1"),
        ("expert_shared_count", 1, "is 1, which is not supported"),
        ("expert_shared_feed_forward_length", 64, "is 64, which is not supported"),
        ("expert_gating_func", 2, "is 2, which is not supported"),
        ("expert_group_count", 4, "is 4, which is not supported"),
        ("leading_dense_block_count", 1, "is 1, which is not supported"),
        ("expert_weights_scale", 2.5, "is not 1, which is not supported"),
    ],
)
def test_gguf_experts_that_are_not_served_are_refused_by_key(
    directory: Path, key: str, value: int | float | None, message: str
) -> None:
    kind = F32 if isinstance(value, float) else U32
    with pytest.raises(ModelFormatError, match=rf"qwen3moe.{key}.*: {re.escape(message)}"):
        change_gguf(directory, {f"qwen3moe.{key}": (value, kind)})


@pytest.mark.parametrize("shape", [(7, 64, 64), (9, 64, 64), (64, 64), (8 * 64 * 64,), (8, 0, 64)])
def test_a_stack_of_another_number_of_experts_is_refused(
    directory: Path, shape: tuple[int, ...]
) -> None:
    message = rf"tensor blk.1.ffn_up_exps.weight.*: has shape {re.escape(str(shape))} where \(8, "
    with pytest.raises(ModelFormatError, match=message):
        change_gguf(directory, stacks={"blk.1.ffn_up_exps.weight": shape})


def test_a_stack_of_misshapen_experts_is_refused_with_its_name_in_the_file(
    directory: Path,
) -> None:
    checkpoint = change_gguf(directory, stacks={"blk.1.ffn_up_exps.weight": (8, 63, 64)})
    message = (
        r"tensor blk.1.ffn_up_exps.weight \(model.layers.1.mlp.experts.0.up_proj.weight\).*: "
        r"has shape \(63, 64\) where \(64, 64\)"
    )
    with pytest.raises(ModelFormatError, match=message):
        check_tensors(checkpoint, build_program(checkpoint.config).weights)


def test_a_mixture_in_a_family_without_one_is_refused(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "qwen2moe")
    writer.add_expert_count(60)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(UnsupportedArchitectureError, match="'qwen2moe' with a mixture of 60 exp"):
        open_checkpoint(tmp_path / "a.gguf", FAMILIES)


LAYERS = limits.MAX_LAYER_EXPERTS // limits.MAX_EXPERTS


def open_and_check(path: Path) -> None:
    checkpoint = open_checkpoint(path, FAMILIES)
    check_tensors(checkpoint, build_program(checkpoint.config).weights)


def test_as_many_experts_as_there_may_be_are_claimed_within_bounds(
    tmp_path: Path, bounded: Callable[[], Any]
) -> None:
    config = {
        "architectures": ["Qwen3MoeForCausalLM"],
        "vocab_size": 20,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 4,
        "max_position_embeddings": 64,
        "rms_norm_eps": 1e-5,
        "num_experts": limits.MAX_EXPERTS,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 16,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    save_file({"t": np.zeros(4, np.float32)}, tmp_path / "model.safetensors")
    with bounded(), pytest.raises(ModelFormatError, match=r"embed_tokens.weight: is missing"):
        open_and_check(tmp_path)


def test_as_many_experts_as_there_may_be_are_cut_within_bounds(
    directory: Path, bounded: Callable[[], Any]
) -> None:
    many: dict[str, Any] = {
        "qwen3moe.block_count": (LAYERS, U32),
        "qwen3moe.expert_count": (limits.MAX_EXPERTS, U32),
    }
    stacks = {
        f"blk.{i}.ffn_{name}_exps.weight": (limits.MAX_EXPERTS, 1, 1)
        for i in range(LAYERS)
        for name in ("gate", "up", "down")
    }
    with pytest.raises(ModelFormatError, match="ffn_gate_exps"):
        change_gguf(directory, many)
    change_gguf(directory, many, stacks)
    with bounded(), pytest.raises(ModelFormatError, match=r"mlp.gate.weight.*\(1024, 64\)"):
        open_and_check(directory / "changed.gguf")
