"""From the metadata of a GGUF file to a :class:`ModelConfig`.

Keys and their defaults: the GGUF specification (ggml ``docs/gguf.md``, "LLM" section).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from farthing.config import ModelConfig, Rope, RopeScaling
from farthing.errors import ModelFormatError
from farthing.models.checkpoint import limits
from farthing.models.checkpoint.fields import Fields
from farthing.models.checkpoint.gguf_file import GgufFile
from farthing.models.checkpoint.gguf_metadata import ValueType
from farthing.models.checkpoint.tensor import TensorSource
from farthing.tokenization.source import GgufVocabulary


@dataclass(frozen=True, slots=True)
class GgufArchitecture:
    """What the metadata leaves unsaid about an architecture."""

    interleaved_rope: bool  # q and k rows are stored so that rope pairs are neighbours
    attention_bias: bool | None  # None: there is one if the file has one


GGUF_ARCHITECTURES: Mapping[str, GgufArchitecture] = MappingProxyType(
    {
        "llama": GgufArchitecture(interleaved_rope=True, attention_bias=None),
        "qwen2": GgufArchitecture(interleaved_rope=False, attention_bias=True),
    }
)


def metadata_fields(file: GgufFile) -> Fields:
    """The metadata as typed look-ups.

    A float32 is read as the shortest decimal that rounds to it: the file's 9.99999997e-07 is the
    1e-06 its author wrote, and then equals the configuration of the same model in other formats.
    """
    values: dict[str, object] = {}
    for key, entry in file.metadata.items():
        value: object = entry.value
        if entry.kind is ValueType.FLOAT32 and isinstance(value, float):
            value = float(str(np.float32(value)))
        values[key] = value
    return Fields(file.path, values, {key: e.offset for key, e in file.metadata.items()})


def read_config(
    fields: Fields,
    architecture: str,
    vocab_size: int,
    tensor_names: frozenset[str],
    rope_factors: TensorSource | None,
    vocabulary: GgufVocabulary | None,
) -> ModelConfig:
    """The configuration of ``architecture``, whose keys start with its name.

    ``tensor_names`` are GGUF names. Raises :class:`ModelFormatError` naming the key that is missing
    or impossible.
    """
    key = f"{architecture}.".__add__
    hidden_size = fields.integer(key("embedding_length"), 1, limits.MAX_WIDTH)
    num_heads = fields.integer(key("attention.head_count"), 1, limits.MAX_HEADS)
    kv_key = key("attention.head_count_kv")
    num_kv_heads = fields.optional_integer(kv_key, 1, limits.MAX_HEADS) or num_heads
    if num_heads % num_kv_heads:
        fields.fail(kv_key, f"is {num_kv_heads}, which does not divide the {num_heads} heads")
    known_bias = GGUF_ARCHITECTURES[architecture].attention_bias
    has_bias = any(name.endswith(".attn_q.bias") for name in tensor_names)
    head_dim = _head_dim(fields, architecture, hidden_size, num_heads)
    return ModelConfig(
        architecture=architecture,
        num_layers=fields.integer(key("block_count"), 1, limits.MAX_LAYERS),
        hidden_size=hidden_size,
        intermediate_size=fields.integer(key("feed_forward_length"), 1, limits.MAX_WIDTH),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        vocab_size=vocab_size,
        context_length=fields.integer(key("context_length"), 1, limits.MAX_CONTEXT),
        rms_norm_eps=fields.real(
            key("attention.layer_norm_rms_epsilon"), limits.MIN_EPS, limits.MAX_EPS
        ),
        rope=_rope(fields, architecture, head_dim, rope_factors),
        attention_bias=has_bias if known_bias is None else known_bias,
        tie_word_embeddings="output.weight" not in tensor_names,
        bos_token_id=vocabulary.bos_id if vocabulary else None,
        eos_token_ids=_end_ids(vocabulary) if vocabulary else (),
    )


def _end_ids(vocabulary: GgufVocabulary) -> tuple[int, ...]:
    ids = (vocabulary.eos_id, *vocabulary.other_eos_ids)
    return tuple(dict.fromkeys(i for i in ids if i is not None))


def _head_dim(fields: Fields, architecture: str, hidden_size: int, num_heads: int) -> int:
    key, value_key = (
        f"{architecture}.attention.key_length",
        f"{architecture}.attention.value_length",
    )
    head_dim = fields.optional_integer(key, 2, limits.MAX_HEAD_DIM)
    if head_dim is None:
        if hidden_size % num_heads:
            fields.fail(
                f"{architecture}.attention.head_count",
                f"is {num_heads}, which does not divide the embedding length {hidden_size}",
            )
        head_dim = hidden_size // num_heads
        key = f"{architecture}.embedding_length"
    if head_dim % 2 or not 2 <= head_dim <= limits.MAX_HEAD_DIM:
        fields.fail(key, f"makes heads of {head_dim} dimensions; an even number is needed")
    value_length = fields.optional_integer(value_key, 1, limits.MAX_HEAD_DIM)
    if value_length not in (None, head_dim):
        fields.fail(
            value_key,
            f"is {value_length} where keys have {head_dim} dimensions; they must be equal",
        )
    return head_dim


def _rope(fields: Fields, architecture: str, head_dim: int, factors: TensorSource | None) -> Rope:
    dim_key = f"{architecture}.rope.dimension_count"
    dim = fields.optional_integer(dim_key, 2, head_dim) or head_dim
    if dim % 2:
        fields.fail(dim_key, f"is {dim}; an even number is needed")
    base = fields.optional_real(
        f"{architecture}.rope.freq_base", limits.MIN_THETA, limits.MAX_THETA
    )
    theta = 10000.0 if base is None else base
    factor = _linear_factor(fields, architecture)
    if factors is not None:
        scaled = tuple(factor * value for value in _factors(factors, dim))
        if any(value != 1.0 for value in scaled):
            return Rope(theta, dim, RopeScaling(kind="factors", factors=scaled))
    elif factor != 1.0:
        return Rope(theta, dim, RopeScaling(kind="linear", factor=factor))
    return Rope(theta, dim)


def _linear_factor(fields: Fields, architecture: str) -> float:
    """What rope divides positions by: 1 if there is no scaling."""
    prefix = f"{architecture}.rope.scaling"
    kind = fields.optional_text(f"{prefix}.type") or "linear"
    if kind == "none":
        return 1.0
    if kind != "linear":
        fields.fail(f"{prefix}.type", f"is {kind!r}; supported are 'none' and 'linear'")
    for key in (f"{prefix}.factor", f"{architecture}.rope.scale_linear"):
        if key in fields and fields.real(key, 0.0, limits.MAX_SCALE) != 0.0:
            return fields.real(key, limits.MIN_SCALE, limits.MAX_SCALE)
    return 1.0


def _factors(tensor: TensorSource, dim: int) -> list[float]:
    if tensor.shape != (dim // 2,):
        raise ModelFormatError(
            tensor.file,
            f"has shape {tensor.shape} where ({dim // 2},) is needed",
            field=f"tensor {tensor.name}",
            offset=tensor.offset,
        )
    values: list[float] = tensor.dequantize().tolist()
    for index, value in enumerate(values):
        if not limits.MIN_SCALE <= value <= limits.MAX_SCALE:  # a NaN is in no range
            raise ModelFormatError(
                tensor.file,
                f"factor {index} is {value:g}, outside {limits.MIN_SCALE:g} to "
                f"{limits.MAX_SCALE:g}",
                field=f"tensor {tensor.name}",
                offset=tensor.offset,
            )
    return values
