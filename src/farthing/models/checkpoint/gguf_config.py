"""From the metadata of a GGUF file to a :class:`ModelConfig`.

Keys and their defaults: the GGUF specification (ggml ``docs/gguf.md``, "LLM" section).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from farthing.config import ModelConfig
from farthing.models.checkpoint import limits
from farthing.models.checkpoint.checkpoint import LM_HEAD, AnyTensor
from farthing.models.checkpoint.fields import Fields
from farthing.models.checkpoint.gguf_file import GgufFile
from farthing.models.checkpoint.gguf_metadata import ValueType
from farthing.models.checkpoint.gguf_rope import read_rope
from farthing.models.checkpoint.windows import read_gguf_windows, with_window
from farthing.models.family import Family, GgufDialect
from farthing.tokenization.source import GgufVocabulary


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
    family: Family,
    dialect: GgufDialect,
    vocab_size: int,
    tensors: Mapping[str, AnyTensor],
    vocabulary: GgufVocabulary | None,
) -> ModelConfig:
    """The configuration of a model of ``family``, whose keys start with the dialect's name for it.

    ``tensors`` are by canonical name. Raises :class:`ModelFormatError` naming the key that is
    missing or impossible.
    """
    architecture = dialect.architecture
    key = f"{architecture}.".__add__
    if not fields.boolean(key("attention.causal"), True):  # a model of embeddings
        fields.fail(
            key("attention.causal"), "is false: tokens that see later ones are not supported"
        )
    hidden_size = fields.integer(key("embedding_length"), 1, limits.MAX_WIDTH)
    num_heads = fields.integer(key("attention.head_count"), 1, limits.MAX_HEADS)
    kv_key = key("attention.head_count_kv")
    num_kv_heads = fields.optional_integer(kv_key, 1, limits.MAX_HEADS) or num_heads
    if num_heads % num_kv_heads:
        fields.fail(kv_key, f"is {num_kv_heads}, which does not divide the {num_heads} heads")
    has_bias = any(name.endswith(".self_attn.q_proj.bias") for name in tensors)
    num_layers = fields.integer(key("block_count"), 1, limits.MAX_LAYERS)
    head_dim = _head_dim(fields, architecture, hidden_size, num_heads)
    context_length = fields.integer(key("context_length"), 1, limits.MAX_CONTEXT)
    rope = read_rope(fields, architecture, head_dim, context_length, tensors)
    config = ModelConfig(
        architecture=family.name,
        num_layers=num_layers,
        hidden_size=hidden_size,
        intermediate_size=fields.integer(key("feed_forward_length"), 1, limits.MAX_WIDTH),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        vocab_size=vocab_size,
        context_length=min(max(context_length, rope.stretched_context), limits.MAX_CONTEXT),
        rms_norm_eps=fields.real(
            key("attention.layer_norm_rms_epsilon"), limits.MIN_EPS, limits.MAX_EPS
        ),
        rope=rope,
        attention_bias=has_bias if dialect.attention_bias is None else dialect.attention_bias,
        mlp_bias=any(name.endswith(".mlp.down_proj.bias") for name in tensors),
        tie_word_embeddings=LM_HEAD not in tensors,
        bos_token_id=vocabulary.bos_id if vocabulary else None,
        eos_token_ids=_end_ids(vocabulary) if vocabulary else (),
    )
    config = with_window(config, *read_gguf_windows(fields, architecture, num_layers))
    return dialect.read(fields, config)


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
