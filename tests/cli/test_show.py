"""``farthing show``: what is told of a model is what the model is."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import pytest

from farthing.cli.show import kv_facts
from farthing.engine.block_pool import BLOCK_TOKENS
from farthing.models.registry import build_program
from farthing.program.native import KvCache
from support.command_line import CommandLine
from support.kv_bytes import TOKEN_BYTES
from support.moe_gguf import write_moe_gguf
from support.packing import pack
from support.tiny_models import KINDS, make_tiny_model


def test_show_for_programs(farthing: CommandLine, tiny_model: str) -> None:
    result = farthing("show", tiny_model, "--json")
    assert (result.returncode, result.stderr) == (0, "")
    facts = json.loads(result.stdout)
    config = KINDS["qwen2-tied"]
    assert facts["architecture"] == "qwen2"
    assert facts["layers"] == config.num_layers
    assert facts["heads"] == config.num_heads
    assert facts["kv_heads"] == config.num_kv_heads
    assert facts["context_length"] == config.context_length
    assert facts["chat_template"] is True
    types = facts["tensor_types"]
    assert set(types) == {"f32"}
    assert types["f32"]["bytes"] == facts["tensor_bytes"] == 4 * facts["parameters"]
    assert facts["bits_per_weight"] == 32
    assert "program" not in facts


def test_show_for_people(farthing: CommandLine, tiny_model: str) -> None:
    result = farthing("show", tiny_model, "--program")
    assert (result.returncode, result.stderr) == (0, "")
    for text in (
        "qwen2",
        "256 tokens",
        "f32",
        "32.00",
        "fp16",
        "int8",
        "= attention(",
        "= linear(",
    ):
        assert text in result.stdout


def test_the_program_is_listed_for_programs_too(farthing: CommandLine, tiny_model: str) -> None:
    facts = json.loads(farthing("show", tiny_model, "--program", "--json").stdout)
    assert facts["program"][0].startswith("%0 (T, 64) = embed(")


def test_experts_are_shown_and_counted(farthing: CommandLine, tmp_path: Path) -> None:
    directory = make_tiny_model("qwen3-moe-mixed", tmp_path / "tiny")
    facts = json.loads(farthing("show", str(directory), "--json").stdout)
    assert facts["experts"] == {
        "count": 5,
        "per_token": 3,
        "intermediate_size": 40,
        "normalize": False,
        "dense_layers": [0],
    }
    assert facts["parameters"] - facts["active_parameters"] == 2 * (5 - 3) * 3 * 40 * 64
    text = farthing("show", str(directory)).stdout
    assert "3 of 5 for a token, feed-forward 40 each; 1 layer without" in text


def test_a_stack_of_experts_is_one_tensor_of_the_file(
    farthing: CommandLine, tmp_path: Path
) -> None:
    directory = make_tiny_model("qwen3-moe", tmp_path / "tiny")
    path = write_moe_gguf(directory, tmp_path / "tiny.gguf", {"": "Q8_0"})
    one, other = (
        json.loads(farthing("show", str(each), "--json").stdout) for each in (directory, path)
    )
    assert one["parameters"] == other["parameters"]
    assert other["tensor_types"]["q8_0"]["tensors"] == 2 + 3 * (4 + 3)
    assert one["tensor_types"]["f32"]["tensors"] == 3 + 3 * (4 + 4 + 1 + 3 * 8)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_kv_bytes_are_those_that_are_allocated(kind: str) -> None:
    config = KINDS[kind]
    program = build_program(config)
    blocks = -(-config.context_length // BLOCK_TOKENS)
    facts = kv_facts(program, config.context_length)
    for dtype, halves in TOKEN_BYTES.items():
        cache = KvCache(
            dtype=dtype,
            num_layers=program.num_layers,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            num_blocks=blocks,
        )
        assert facts["kv_bytes_full_context"][dtype] == cache.nbytes
        assert facts["kv_bytes_per_token"][dtype] == (
            config.num_layers
            * config.num_kv_heads
            * sum(config.head_dim * bits // 8 + scale for bits, scale in halves)
        )


def test_a_context_that_ends_inside_a_block_needs_the_whole_block() -> None:
    facts = kv_facts(build_program(KINDS["qwen2"]), BLOCK_TOKENS + 1)
    per_token = facts["kv_bytes_per_token"]["fp16"]
    assert facts["kv_bytes_full_context"]["fp16"] == 2 * BLOCK_TOKENS * per_token


@pytest.mark.slow
def test_the_default_model(farthing: CommandLine, qwen_gguf: Path) -> None:
    facts = json.loads(farthing("show", str(qwen_gguf), "--json").stdout)
    assert facts["format"] == "gguf"
    assert facts["kv_bytes_per_token"] == {
        **{"fp32": 24_576, "fp16": 12_288, "int8": 6_528, "int4": 3_456},
        **{"k16v8": 9_408, "k16v4": 7_872, "k8v4": 4_992},
    }
    assert facts["kv_bytes_full_context"]["fp16"] == 12_288 * 32_768
    assert set(facts["tensor_types"]) == {"q4_k", "q5_0", "q6_k", "q8_0", "f32"}
    total = sum(each["bytes"] for each in facts["tensor_types"].values())
    assert total == facts["tensor_bytes"]
    assert 0 < qwen_gguf.stat().st_size - total < 10 << 20  # the rest is metadata
    assert facts["tensor_types"]["q4_k"]["bits_per_weight"] == 4.5


def test_a_packed_directory_is_verified(
    farthing: CommandLine, tiny_model: str, tmp_path: Path
) -> None:
    packed = pack(Path(tiny_model), tmp_path / "packed")
    facts = json.loads(farthing("show", str(packed), "--verify", "--json").stdout)
    assert facts["verified"]["tensors"] == sum(t["tensors"] for t in facts["tensor_types"].values())
    assert facts["verified"]["bytes"] > facts["tensor_bytes"]
    assert "are as they were written" in farthing("show", str(packed), "--verify").stdout
    assert "verified" not in json.loads(farthing("show", str(packed), "--json").stdout)

    weights = packed / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1000] ^= 4
    weights.write_bytes(content)
    result = farthing("show", str(packed), "--verify")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(f"farthing: error: {weights}: tensor ")
    assert "is not as it was written" in result.stderr
    assert result.stderr.count("\n") == 1


def test_what_has_no_checksums_is_not_verified(farthing: CommandLine, tiny_model: str) -> None:
    result = farthing("show", tiny_model, "--verify")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == (
        f"farthing: error: --verify: {tiny_model} came without checksums; directories that "
        "'farthing quantize' makes have them\n"
    )


def test_an_unsupported_architecture_is_told_with_those_supported(
    farthing: CommandLine, tmp_path: Path
) -> None:
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "mamba")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    for arguments in (("show", str(path)), ("run", str(path), "hi")):
        result = farthing(*arguments)
        assert (result.returncode, result.stdout) == (2, "")
        assert len(result.stderr.splitlines()) == 1
        for word in ("mamba", "llama", "qwen2"):
            assert word in result.stderr
