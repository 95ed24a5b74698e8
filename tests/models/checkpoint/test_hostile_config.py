"""F9: impossible numbers in config.json and in GGUF metadata, every field and every kind of value.

Each is refused by name and byte before anything of the model's size is made.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import safetensors.numpy

from farthing.errors import ModelFormatError
from farthing.models.checkpoint import check_tensors, open_checkpoint
from farthing.models.registry import FAMILIES, build_program
from support.bounds import bounded

Change = tuple[str, Any]  # key, value

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 20,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "tie_word_embeddings": False,
    "attention_bias": False,
}
REQUIRED = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
            "num_attention_heads", "max_position_embeddings", "rms_norm_eps")  # fmt: skip
INTEGERS = (*REQUIRED[:-1], "num_key_value_heads", "head_dim", "bos_token_id", "eos_token_id",
            "original_max_position_embeddings")  # fmt: skip
REALS = ("rms_norm_eps", "rope_theta", "partial_rotary_factor")
FLAGS = ("tie_word_embeddings", "attention_bias", "mlp_bias")
SCALED: list[tuple[str, dict[str, Any]]] = [
    ("linear", {"factor": 2.0}),
    ("llama3", {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                "original_max_position_embeddings": 32}),
    ("yarn", {"factor": 2.0, "original_max_position_embeddings": 32, "beta_fast": 32.0,
              "beta_slow": 1.0, "attention_factor": 1.0}),
    ("yarn", {"factor": 2.0, "mscale": 1.0, "mscale_all_dim": 1.0}),
    ("longrope", {"factor": 2.0, "original_max_position_embeddings": 32, "attention_factor": 1.0,
                  "long_factor": [1.0, 2.0], "short_factor": [1.0, 1.0]}),
]  # fmt: skip

NO_INTEGERS = (-1, 2**31, 2**63, 2**64, 10**60, 1.5, 1e3, "2", "", True, [], {}, [[2]])
NO_REALS = (-1.0, -1e-300, 1e300, 10**60, "1e-5", True, [], {}, [1.0])


def config_cases() -> Iterator[tuple[dict[str, Any], str]]:
    """Changes to ``CONFIG`` and the field that must be named."""
    for key in REQUIRED:
        yield {key: None}, key
    for key in INTEGERS:
        for value in NO_INTEGERS:
            if key == "eos_token_id" and isinstance(value, list):
                continue  # a list of ids is fine
            yield {key: value}, key
    for key in (*REQUIRED[:-1], "head_dim", "num_key_value_heads"):
        yield {key: 0}, key
    for key in REALS:
        for value in NO_REALS:
            yield {key: value}, key
    yield {"rms_norm_eps": 0}, "rms_norm_eps"
    yield {"rope_theta": 0}, "rope_theta"
    for key in FLAGS:
        for value in ("yes", 1, 0, 2.0, [], {}):
            yield {key: value}, key
    for key in ("bos_token_id", "eos_token_id"):
        yield {key: 20}, key
    for value in (-1, 20, 2**70, 1.0, "a", True, [1]):
        yield {"eos_token_id": [3, value]}, "eos_token_id[1]"
    yield {"num_key_value_heads": 8}, "num_key_value_heads"
    yield {"num_key_value_heads": 3}, "num_key_value_heads"
    yield {"head_dim": 5}, "head_dim"
    yield {"head_dim": 2**12 + 2}, "head_dim"
    odd = {"head_dim": None, "num_attention_heads": 3, "num_key_value_heads": 3}
    yield odd, "num_attention_heads"
    for value in ({}, [1], 7, "x", [], [["LlamaForCausalLM"]], ["a", "b"]):
        yield {"architectures": value}, "architectures"
    for section in ("rope_scaling", "rope_parameters"):
        for value in ([1], 3, "linear", True):
            yield {section: value}, section
        yield {section: {"rope_type": 5}}, f"{section}.rope_type"
        yield {section: {"rope_type": "\x1b[2J" * 999}}, f"{section}.rope_type"
        for kind, values in SCALED:
            for name in values:
                no_numbers: tuple[Any, ...] = (*NO_REALS, 0)
                if name.endswith("embeddings"):
                    no_numbers = (*NO_INTEGERS, 0)
                # An object inside is taken for the rope of a layer type, and refused as one.
                no_numbers = tuple(value for value in no_numbers if value != {})
                if name.endswith("_factor") and isinstance(values[name], list):
                    no_numbers = ([], [1.0], [1.0] * 3, 1.0, "x")
                    for value in NO_REALS:
                        changed = values | {name: [1.0, value], "rope_type": kind}
                        yield {section: changed}, f"{section}.{name}[1]"
                for value in no_numbers:
                    changed = values | {name: value, "rope_type": kind}
                    yield {section: changed}, f"{section}.{name}"


CONFIG_CASES = list(config_cases())


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    safetensors.numpy.save_file({"t": np.zeros(4, np.float32)}, path / "model.safetensors")
    return path


def open_config(directory: Path, changes: dict[str, Any]) -> Any:
    config = {key: value for key, value in (CONFIG | changes).items() if value is not None}
    (directory / "config.json").write_text(json.dumps(config))
    return open_checkpoint(directory, FAMILIES)


def test_the_configuration_is_read_without_a_change(directory: Path) -> None:
    for kind, values in SCALED:
        scaling = open_config(directory, {"rope_scaling": values | {"rope_type": kind}})
        assert scaling.config.rope.scaling.kind == kind
        build_program(scaling.config)


def test_impossible_values_of_config_json(directory: Path) -> None:
    path = directory / "config.json"
    with bounded():
        for changes, _ in CONFIG_CASES[::10]:
            with pytest.raises(ModelFormatError):
                open_config(directory, changes)
    for changes, field in CONFIG_CASES:
        with pytest.raises(ModelFormatError) as caught:
            open_config(directory, changes)
        error = caught.value
        assert (error.file, error.field) == (path, field), changes
        assert len(str(error)) < 1000
        assert str(error).isprintable(), changes
        top = field.partition(".")[0].partition("[")[0]
        at = path.read_bytes().find(b'"%s"' % top.encode())
        assert error.offset == (None if at < 0 else at), changes


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "9" * 9999])
@pytest.mark.parametrize("key", ["rms_norm_eps", "rope_theta", "num_hidden_layers"])
def test_numbers_that_are_no_json(key: str, literal: str, directory: Path) -> None:
    text = json.dumps(CONFIG | {key: "HERE"}).replace('"HERE"', literal)
    (directory / "config.json").write_text(text)
    with bounded(), pytest.raises(ModelFormatError) as caught:
        open_checkpoint(directory, FAMILIES)
    assert (caught.value.field, caught.value.offset) == ("JSON", text.index(f" {literal}") + 1)


@pytest.mark.parametrize("file", ["generation_config.json", "tokenizer_config.json"])
@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"a": 1', b'{"a": 1, "a": 2}', b'{"a": NaN}', b"\xef\xbb\xbf{}",
                b'{"a": "\xff"}', b'{"a": "\\ud800"}', b'{"a": ' * 70, b'{"a": ' + b"[" * 10**6,
                b'{"a": %s}' % (b"9" * 10**5), b'{"a": [' + b"0," * 10**7],
    ids=lambda content: repr(content[:12]),
)  # fmt: skip
def test_other_json_files(file: str, content: bytes, tmp_path: Path, directory: Path) -> None:
    open_config(directory, {})
    (tmp_path / "config.json").write_bytes((directory / "config.json").read_bytes())
    (tmp_path / "model.safetensors").write_bytes((directory / "model.safetensors").read_bytes())
    open_checkpoint(tmp_path, FAMILIES)
    (tmp_path / file).write_bytes(content)
    with bounded(), pytest.raises(ModelFormatError) as caught:
        open_checkpoint(tmp_path, FAMILIES)
    assert (caught.value.file, caught.value.field) == (tmp_path / file, "JSON")
    assert caught.value.offset is not None


def test_end_tokens_of_the_generation_configuration(directory: Path, tmp_path: Path) -> None:
    open_config(directory, {})
    for file in ("config.json", "model.safetensors"):
        (tmp_path / file).write_bytes((directory / file).read_bytes())
    generation = tmp_path / "generation_config.json"
    for value in (20, -1, "2", 2.0, True, {"a": 1}):
        generation.write_text(json.dumps({"x": 1, "eos_token_id": value}))
        with pytest.raises(ModelFormatError) as caught:
            open_checkpoint(tmp_path, FAMILIES)
        assert (caught.value.file, caught.value.field) == (generation, "eos_token_id")
        assert caught.value.offset == generation.read_text().index('"eos')


def test_a_configuration_far_larger_than_the_file(directory: Path) -> None:
    """The largest numbers that are allowed, and one small tensor: told before memory is made."""
    large = {"num_hidden_layers": 1 << 10, "hidden_size": 1 << 20, "intermediate_size": 1 << 20,
             "num_attention_heads": 1 << 14, "num_key_value_heads": 1 << 14, "head_dim": 1 << 12,
             "vocab_size": 1 << 24, "max_position_embeddings": 1 << 28}  # fmt: skip
    with bounded():
        checkpoint = open_config(directory, large)
        with pytest.raises(ModelFormatError, match=r"is missing; a weight of shape \(16777216"):
            check_tensors(checkpoint, build_program(checkpoint.config).weights)


GGUF_INTEGERS = ("block_count", "context_length", "embedding_length", "feed_forward_length",
                 "attention.head_count", "attention.head_count_kv", "attention.key_length",
                 "attention.value_length", "rope.dimension_count",
                 "rope.scaling.original_context_length")  # fmt: skip
GGUF_REALS = ("attention.layer_norm_rms_epsilon", "rope.freq_base", "rope.scaling.factor")
GGUF_YARN = ("rope.scaling.factor", "rope.scaling.attn_factor", "rope.scaling.yarn_beta_fast",
             "rope.scaling.yarn_beta_slow")  # fmt: skip
TYPE = gguf.GGUFValueType


def gguf_cases() -> Iterator[tuple[dict[str, Any], str]]:
    """Changes to the keys of a file and the key that must be named."""
    for key in GGUF_INTEGERS:
        for value in (
            (0, TYPE.UINT32), (2**31, TYPE.UINT32), (2**32 - 1, TYPE.UINT32), (-1, TYPE.INT32),
            (-(2**63), TYPE.INT64), (2**64 - 1, TYPE.UINT64), (4.0, TYPE.FLOAT32),
            (math.nan, TYPE.FLOAT64), (True, TYPE.BOOL), ("4", TYPE.STRING), [4, 4], ["4"],
        ):  # fmt: skip
            yield {key: value}, key
    for key in GGUF_REALS:
        for number in (math.nan, math.inf, -math.inf, -1.0, 1e30):
            yield {key: (number, TYPE.FLOAT32)}, key
        for number in (math.nan, math.inf, -1e300, 1e300):
            yield {key: (number, TYPE.FLOAT64)}, key
        for value in ((True, TYPE.BOOL), ("1", TYPE.STRING), (2**63, TYPE.UINT64), [1.0]):
            yield {key: value}, key
    yield (
        {"attention.layer_norm_rms_epsilon": (0.0, TYPE.FLOAT32)},
        ("attention.layer_norm_rms_epsilon"),
    )
    yield {"rope.freq_base": (0.0, TYPE.FLOAT32)}, "rope.freq_base"
    for key in GGUF_YARN:
        for number in (math.nan, math.inf, -1.0, 0.0, 1e30):
            yarn = {"rope.scaling.type": ("yarn", TYPE.STRING)}
            yield yarn | {key: (number, TYPE.FLOAT32)}, key
    yield {"attention.head_count_kv": (8, TYPE.UINT32)}, "attention.head_count_kv"
    yield {"attention.head_count_kv": (3, TYPE.UINT32)}, "attention.head_count_kv"
    yield {"attention.key_length": (5, TYPE.UINT32)}, "attention.key_length"
    yield {"attention.value_length": (8, TYPE.UINT32)}, "attention.value_length"
    yield {"rope.dimension_count": (3, TYPE.UINT32)}, "rope.dimension_count"
    yield {"rope.dimension_count": (6, TYPE.UINT32)}, "rope.dimension_count"
    yield {"rope.scaling.type": ("\x1b" * 9999, TYPE.STRING)}, "rope.scaling.type"
    yield {"rope.scaling.type": (1, TYPE.UINT32)}, "rope.scaling.type"


GGUF_CASES = list(gguf_cases())


@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
def test_impossible_values_of_gguf_metadata(
    architecture: str, tmp_path: Path, gguf_builder: Callable[..., Any]
) -> None:
    path = tmp_path / "a.gguf"
    good = gguf_builder(architecture)
    open_checkpoint(good.write(path), FAMILIES)
    for changes, field in GGUF_CASES:
        builder = gguf_builder(architecture)
        builder.keys |= {f"{architecture}.{key}": value for key, value in changes.items()}
        builder.write(path)
        with bounded(), pytest.raises(ModelFormatError) as caught:
            open_checkpoint(path, FAMILIES)
        key = f"{architecture}.{field}"
        assert (caught.value.file, caught.value.field) == (path, key), changes
        assert caught.value.offset == path.read_bytes().index(key.encode()) - 8, changes
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 1000
    for key in list(good.keys):
        builder = gguf_builder(architecture)
        del builder.keys[key]
        builder.write(path)
        if key.endswith("head_count_kv"):
            open_checkpoint(path, FAMILIES)
            continue
        with pytest.raises(ModelFormatError, match="is missing") as caught:
            open_checkpoint(path, FAMILIES)
        assert caught.value.field == key


def open_whole(path: Path) -> None:
    checkpoint = open_checkpoint(path, FAMILIES)
    check_tensors(checkpoint, build_program(checkpoint.config).weights)


SHAPES = ("block_count", "embedding_length", "feed_forward_length", "attention.head_count_kv")


@pytest.mark.parametrize("key", SHAPES)
def test_numbers_that_disagree_with_the_tensors(
    key: str, tmp_path: Path, gguf_builder: Callable[..., Any]
) -> None:
    builder = gguf_builder()
    number = builder.keys[f"llama.{key}"][0]
    for other in {1, 2 * number, 4 * number} - {number}:
        builder.keys[f"llama.{key}"] = (other, TYPE.UINT32)
        path = builder.write(tmp_path / "a.gguf")
        with bounded(), pytest.raises(ModelFormatError) as caught:
            open_whole(path)
        assert caught.value.file == path
        assert caught.value.field is not None


@pytest.mark.parametrize("name", ["rope_freqs.weight"])
def test_rope_factors_that_are_no_factors(
    name: str, tmp_path: Path, gguf_builder: Callable[..., Any]
) -> None:
    for values in ([np.nan, 1], [np.inf, 1], [0, 1], [-1, 1], [1e30, 1], [1], [1, 1, 1], [[1, 1]]):
        builder = gguf_builder()
        builder.tensors[name] = np.array(values, np.float32)
        path = builder.write(tmp_path / "a.gguf")
        with bounded(), pytest.raises(ModelFormatError) as caught:
            open_checkpoint(path, FAMILIES)
        assert caught.value.field == f"tensor {name}"
        assert caught.value.offset is not None
