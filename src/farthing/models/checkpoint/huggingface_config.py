"""From a ``config.json`` to a :class:`ModelConfig`.

Keys and their defaults: the ``LlamaConfig`` class of transformers, releases 4 and 5; a family's own
keys are read by its file in ``models/``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

from farthing.config import Activation, ModelConfig
from farthing.errors import UnsupportedArchitectureError
from farthing.models.checkpoint import limits
from farthing.models.checkpoint.fields import Fields
from farthing.models.checkpoint.huggingface_rope import read_ropes
from farthing.models.family import Family

ACTIVATIONS: Mapping[str, Activation] = MappingProxyType(
    {"silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu_tanh"}
)


def read_config(fields: Fields, generation: Fields | None, family: Family) -> ModelConfig:
    """The configuration; end-of-answer ids in ``generation`` (generation_config.json) win.

    Raises :class:`ModelFormatError` naming the key that is missing, impossible or not supported.
    """
    _refuse_unsupported(fields)
    hidden_size = fields.integer("hidden_size", 1, limits.MAX_WIDTH)
    num_heads = fields.integer("num_attention_heads", 1, limits.MAX_HEADS)
    num_kv_heads = fields.optional_integer("num_key_value_heads", 1, limits.MAX_HEADS) or num_heads
    if num_heads % num_kv_heads:
        fields.fail(
            "num_key_value_heads",
            f"is {num_kv_heads}, which does not divide the {num_heads} heads",
        )
    head_dim = _head_dim(fields, hidden_size, num_heads)
    vocab_size = fields.integer("vocab_size", 1, limits.MAX_VOCABULARY)
    context_length = fields.integer("max_position_embeddings", 1, limits.MAX_CONTEXT)
    ends = None if generation is None else _token_ids(generation, "eos_token_id", vocab_size)
    partial = family.hugging_face.partial_rope
    rope, local_rope = read_ropes(fields, head_dim, context_length, partial=partial)
    config = ModelConfig(
        architecture=family.name,
        num_layers=fields.integer("num_hidden_layers", 1, limits.MAX_LAYERS),
        hidden_size=hidden_size,
        intermediate_size=fields.integer("intermediate_size", 1, limits.MAX_WIDTH),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        vocab_size=vocab_size,
        context_length=min(max(context_length, rope.stretched_context), limits.MAX_CONTEXT),
        rms_norm_eps=fields.real("rms_norm_eps", limits.MIN_EPS, limits.MAX_EPS),
        rope=rope,
        local_rope=local_rope,
        attention_bias=fields.boolean("attention_bias", False),
        mlp_bias=fields.boolean("mlp_bias", False),
        activation=_activation(fields, family.hugging_face.activation),
        tie_word_embeddings=fields.boolean("tie_word_embeddings", False),
        bos_token_id=fields.optional_integer("bos_token_id", 0, vocab_size - 1),
        eos_token_ids=ends or _token_ids(fields, "eos_token_id", vocab_size),
    )
    return family.hugging_face.read(fields, config)


def find_family(fields: Fields, families: Collection[Family]) -> Family:
    """The one of ``families`` that the file names.

    Raises :class:`UnsupportedArchitectureError` naming the class and the supported ones.
    """
    classes = fields.values.get("architectures")
    if classes is None:
        name = fields.text("model_type")
        found = [family for family in families if name in family.hugging_face.model_types]
    elif isinstance(classes, list) and len(classes) == 1 and isinstance(classes[0], str):
        name = classes[0]
        found = [family for family in families if name in family.hugging_face.classes]
    else:
        fields.fail("architectures", "must be a list of one class name")
    if not found:
        known = sorted(name for family in families for name in family.hugging_face.classes)
        raise UnsupportedArchitectureError(
            f"{fields.file}: architecture {name[:80]!r} is not supported; "
            f"supported: {', '.join(known)}"
        )
    return found[0]


def _refuse_unsupported(fields: Fields) -> None:
    quantization = fields.values.get("quantization_config")
    if quantization is not None:
        method = quantization.get("quant_method") if isinstance(quantization, dict) else None
        fields.fail("quantization_config", f"method {str(method)[:40]!r} is not supported yet")
    if not fields.boolean("is_causal", True):  # a model of embeddings
        fields.fail("is_causal", "is false: tokens that see later ones are not supported")


def _activation(fields: Fields, key: str) -> Activation:
    name = fields.optional_text(key) or "silu"
    if name not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        fields.fail(key, f"is {name[:40]!r}, which is not supported; supported: {known}")
    return ACTIVATIONS[name]


def _head_dim(fields: Fields, hidden_size: int, num_heads: int) -> int:
    head_dim = fields.optional_integer("head_dim", 2, limits.MAX_HEAD_DIM)
    if head_dim is None:
        if hidden_size % num_heads:
            fields.fail(
                "num_attention_heads",
                f"is {num_heads}, which does not divide the hidden size {hidden_size}",
            )
        head_dim = hidden_size // num_heads
    if head_dim % 2 or not 2 <= head_dim <= limits.MAX_HEAD_DIM:
        fields.fail("head_dim", f"is {head_dim}; an even number is needed")
    return head_dim


def _token_ids(fields: Fields, key: str, vocab_size: int) -> tuple[int, ...]:
    """The id or list of ids ``key``, or none if it is absent."""
    value = fields.values.get(key)
    if value is None:
        return ()
    if not isinstance(value, list):
        return (fields.integer(key, 0, vocab_size - 1),)
    names = {f"{key}[{index}]": item for index, item in enumerate(value)}
    items = Fields(fields.file, names, fields.offsets)
    return tuple(dict.fromkeys(items.integer(name, 0, vocab_size - 1) for name in names))
