"""Builders of model files: well-formed through the format's own package, hostile by hand."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gguf
import numpy as np
import pytest

from support import bounds

U32, U64 = gguf.GGUFValueType.UINT32, gguf.GGUFValueType.UINT64


def string(text: bytes | str) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


def pair(key: bytes | str, kind: int, payload: bytes) -> bytes:
    return string(key) + struct.pack("<I", kind) + payload


def array(key: bytes | str, kind: int, count: int, payload: bytes = b"") -> bytes:
    return pair(key, 9, struct.pack("<IQ", kind, count) + payload)


def tensor(name: bytes | str, dims: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    """A directory entry; ``dims`` in the file's order, fastest first."""
    shape = struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
    return string(name) + shape + struct.pack("<IQ", kind, offset)


def whole(
    pairs: list[bytes],
    tensors: list[bytes],
    data: bytes = b"",
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    counts: tuple[int, int] | None = None,
    alignment: int = 32,
) -> bytes:
    """A GGUF file of hand-made parts; ``counts`` (tensors, pairs) if they are to lie."""
    num_tensors, num_pairs = counts or (len(tensors), len(pairs))
    head = magic + struct.pack("<IQQ", version, num_tensors, num_pairs)
    body = head + b"".join(pairs) + b"".join(tensors)
    return body + bytes(-len(body) % alignment) + data


@pytest.fixture(scope="session")
def raw() -> SimpleNamespace:
    """Hand-made parts of GGUF files."""
    return SimpleNamespace(string=string, pair=pair, array=array, tensor=tensor, whole=whole)


@pytest.fixture(scope="session")
def bounded() -> Callable[[], Any]:
    """The bound every refused file must keep."""
    return bounds.bounded


def _random_blocks(name: str, rows: int, cols: int, seed: int = 0) -> np.ndarray:
    """(rows, row bytes) of a GGUF type: random blocks, but with values that fit fp16."""
    kind = gguf.GGMLQuantizationType[name.upper()]
    block_cols, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    rng = np.random.default_rng(seed)
    wanted = rows * cols // block_cols
    kept = np.empty((0, block_bytes), np.uint8)
    while len(kept) < wanted:
        blocks = rng.integers(0, 256, (8 * wanted, block_bytes), np.uint8)
        with np.errstate(all="ignore"):
            values = gguf.dequantize(blocks, kind).reshape(len(blocks), -1)
            fits = np.isfinite(values).all(1) & (np.abs(values) < 6e4).all(1)
        kept = np.concatenate([kept, blocks[fits]])
    return kept[:wanted].reshape(rows, -1)


@pytest.fixture(scope="session")
def random_blocks() -> Callable[..., np.ndarray]:
    """Rows of any GGUF type that the gguf package can dequantize."""
    return _random_blocks


class GgufBuilder:
    """A small model file through gguf.GGUFWriter; every key and tensor can be changed."""

    def __init__(self, architecture: str = "llama") -> None:
        self.architecture = architecture
        p = architecture
        self.keys: dict[str, Any] = {
            f"{p}.block_count": (1, U32),
            f"{p}.context_length": (64, U32),
            f"{p}.embedding_length": (16, U32),
            f"{p}.feed_forward_length": (32, U32),
            f"{p}.attention.head_count": (4, U32),
            f"{p}.attention.head_count_kv": (2, U32),
            f"{p}.attention.layer_norm_rms_epsilon": (1e-5, gguf.GGUFValueType.FLOAT32),
        }
        rng = np.random.default_rng(7)
        shapes = {
            "token_embd.weight": (20, 16),
            "output_norm.weight": (16,),
            "output.weight": (20, 16),
            "blk.0.attn_norm.weight": (16,),
            "blk.0.attn_q.weight": (16, 16),
            "blk.0.attn_k.weight": (8, 16),
            "blk.0.attn_v.weight": (8, 16),
            "blk.0.attn_output.weight": (16, 16),
            "blk.0.ffn_norm.weight": (16,),
            "blk.0.ffn_gate.weight": (32, 16),
            "blk.0.ffn_up.weight": (32, 16),
            "blk.0.ffn_down.weight": (16, 32),
        }
        if architecture == "qwen2":
            shapes |= {
                "blk.0.attn_q.bias": (16,), "blk.0.attn_k.bias": (8,), "blk.0.attn_v.bias": (8,)
            }  # fmt: skip
        self.tensors: dict[str, Any] = {
            name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()
        }

    def write(self, path: Path) -> Path:
        """Writes the file. A tensor is an array, or (uint8 rows, GGUF type name)."""
        writer = gguf.GGUFWriter(path, self.architecture)
        for key, value in self.keys.items():
            if isinstance(value, tuple):
                writer.add_key_value(key, value[0], value[1])
            elif isinstance(value, bool):
                writer.add_bool(key, value)
            elif isinstance(value, str):
                writer.add_string(key, value)
            elif isinstance(value, int):
                writer.add_uint32(key, value)
            elif isinstance(value, float):
                writer.add_float32(key, value)
            else:
                writer.add_array(key, value)
        for name, value in self.tensors.items():
            if isinstance(value, tuple):
                kind = gguf.GGMLQuantizationType[value[1].upper()]
                writer.add_tensor(name, value[0], raw_dtype=kind)
            else:
                writer.add_tensor(name, value)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path


@pytest.fixture
def gguf_builder() -> type[GgufBuilder]:
    """A well-formed GGUF model of a few kilobytes, to be changed and written."""
    return GgufBuilder


@pytest.fixture(scope="session")
def save_tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Any, Path]]:
    """Saves a random model made with transformers; returns it and its directory.

    ``save_tiny("llama" or "qwen2", dtype="float32", shards=None, **config)``.
    """
    import torch
    import transformers

    classes = {
        "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
        "qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM),
    }

    def save(
        architecture: str, dtype: str = "float32", shards: str | None = None, **config: Any
    ) -> tuple[Any, Path]:
        sizes = {
            "vocab_size": 96,
            "hidden_size": 48,
            "intermediate_size": 80,
            "num_hidden_layers": 2,
            "num_attention_heads": 6,
            "num_key_value_heads": 2,
            "max_position_embeddings": 256,
        }
        make_config, make_model = classes[architecture]
        torch.manual_seed(5)
        model = make_model(make_config(**sizes | config)).to(getattr(torch, dtype))
        with torch.no_grad():
            for parameter in model.parameters():  # norms and biases too start as constants
                parameter.copy_(torch.randn_like(parameter))
        path = tmp_path_factory.mktemp(architecture)
        model.save_pretrained(path, **({"max_shard_size": shards} if shards else {}))
        return model, path

    return save
