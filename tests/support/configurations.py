"""Configurations of a family read from keys alone, without a model around them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from farthing.config import ModelConfig
from farthing.models.checkpoint import gguf_config, huggingface_config
from farthing.models.checkpoint.fields import Fields
from farthing.models.checkpoint.tensor import TensorSource
from farthing.models.family import Family

_SIZES = {
    "vocab_size": 20,
    "hidden_size": 64,
    "intermediate_size": 32,
    "num_hidden_layers": 5,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
}
_GGUF_SIZES = {
    "block_count": 5,
    "context_length": 8192,
    "embedding_length": 64,
    "feed_forward_length": 32,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.layer_norm_rms_epsilon": 1e-5,
}


def from_config_json(
    family: Family, values: Mapping[str, object] | None = None, *, without: str | None = None
) -> ModelConfig:
    """What a small ``config.json`` with ``values`` gives; ``without`` is a key to leave out."""
    merged = {**_SIZES, **(values or {})}
    merged.pop(without or "", None)
    fields = Fields(Path("config.json"), merged)
    dialect = family.hugging_face
    fields = fields.with_defaults(dialect.section, dialect.defaults)
    return huggingface_config.read_config(fields, None, family)


def from_gguf(
    family: Family,
    keys: Mapping[str, object] | None = None,
    tensors: Mapping[str, TensorSource] | None = None,
) -> ModelConfig:
    """What the keys of a small GGUF file give; ``keys`` go without the architecture's name."""
    assert family.gguf is not None
    prefix = family.gguf.architecture
    values = {f"{prefix}.{key}": value for key, value in {**_GGUF_SIZES, **(keys or {})}.items()}
    fields = Fields(Path("model.gguf"), values)
    return gguf_config.read_config(fields, family, family.gguf, 20, tensors or {}, None)
