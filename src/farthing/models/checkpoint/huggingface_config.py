"""From a ``config.json`` to a :class:`ModelConfig`.

Keys and their defaults: the ``LlamaConfig`` and ``Qwen2Config`` classes of transformers, releases
4 and 5 (``rope_theta`` and ``rope_scaling`` became ``rope_parameters`` in 5).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

from farthing.config import ModelConfig, Rope, RopeScaling
from farthing.errors import UnsupportedArchitectureError
from farthing.models.checkpoint import limits
from farthing.models.checkpoint.fields import Fields

HUGGINGFACE_ARCHITECTURES: Mapping[str, str] = MappingProxyType(
    {"LlamaForCausalLM": "llama", "Qwen2ForCausalLM": "qwen2"}
)
_MODEL_TYPES = MappingProxyType({"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM"})
_SCALINGS = ("default", "linear", "llama3")


def read_config(
    fields: Fields, generation: Fields | None, supported: Collection[str]
) -> ModelConfig:
    """The configuration; end-of-answer ids in ``generation`` (generation_config.json) win.

    Raises :class:`UnsupportedArchitectureError` naming the class and the supported ones, and
    :class:`ModelFormatError` naming the key that is missing, impossible or not supported yet.
    """
    architecture = _architecture(fields, supported)
    _refuse_unsupported(fields, architecture)
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
    return ModelConfig(
        architecture=architecture,
        num_layers=fields.integer("num_hidden_layers", 1, limits.MAX_LAYERS),
        hidden_size=hidden_size,
        intermediate_size=fields.integer("intermediate_size", 1, limits.MAX_WIDTH),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        vocab_size=vocab_size,
        context_length=context_length,
        rms_norm_eps=fields.real("rms_norm_eps", limits.MIN_EPS, limits.MAX_EPS),
        rope=_rope(fields, head_dim, context_length),
        attention_bias=architecture == "qwen2" or fields.boolean("attention_bias", False),
        tie_word_embeddings=fields.boolean("tie_word_embeddings", False),
        bos_token_id=fields.optional_integer("bos_token_id", 0, vocab_size - 1),
        eos_token_ids=ends or _token_ids(fields, "eos_token_id", vocab_size),
    )


def _architecture(fields: Fields, supported: Collection[str]) -> str:
    classes = fields.values.get("architectures")
    if classes is None:
        model_type = fields.text("model_type")
        name = _MODEL_TYPES.get(model_type, model_type)
    elif isinstance(classes, list) and len(classes) == 1 and isinstance(classes[0], str):
        name = classes[0]
    else:
        fields.fail("architectures", "must be a list of one class name")
    architecture = HUGGINGFACE_ARCHITECTURES.get(name)
    if architecture is None or architecture not in supported:
        known = [key for key, value in HUGGINGFACE_ARCHITECTURES.items() if value in supported]
        raise UnsupportedArchitectureError(
            f"{fields.file}: architecture {name[:80]!r} is not supported; "
            f"supported: {', '.join(known)}"
        )
    return architecture


def _refuse_unsupported(fields: Fields, architecture: str) -> None:
    quantization = fields.values.get("quantization_config")
    if quantization is not None:
        method = quantization.get("quant_method") if isinstance(quantization, dict) else None
        fields.fail("quantization_config", f"method {str(method)[:40]!r} is not supported yet")
    activation = fields.optional_text("hidden_act") or "silu"
    if activation != "silu":
        fields.fail("hidden_act", f"is {activation[:40]!r}; only 'silu' is supported yet")
    layer_types = fields.values.get("layer_types") or []
    windowed = isinstance(layer_types, list) and any(t != "full_attention" for t in layer_types)
    if architecture == "qwen2" and (fields.boolean("use_sliding_window", False) or windowed):
        fields.fail("use_sliding_window", "sliding-window attention is not supported yet")
    for key in ("mlp_bias",):
        if fields.boolean(key, False):
            fields.fail(key, "is true, which is not supported yet")


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


def _rope(fields: Fields, head_dim: int, context_length: int) -> Rope:
    section = "rope_parameters" if "rope_parameters" in fields else "rope_scaling"
    nested = fields.values.get(section)
    if nested is None:
        nested = {}
    if not isinstance(nested, dict):
        fields.fail(section, "must be an object")
    rope = Fields(fields.file, {f"{section}.{key}": value for key, value in nested.items()})
    key = f"{section}.".__add__
    for holder, name in ((fields, "partial_rotary_factor"), (rope, key("partial_rotary_factor"))):
        if holder.optional_real(name, 0.0, 1.0) not in (None, 1.0):
            holder.fail(name, "is not 1; partial rotary embedding is not supported yet")
    theta = rope.optional_real(key("rope_theta"), limits.MIN_THETA, limits.MAX_THETA)
    if theta is None:
        theta = fields.optional_real("rope_theta", limits.MIN_THETA, limits.MAX_THETA)
    return Rope(
        theta=10000.0 if theta is None else theta,
        dim=head_dim,
        scaling=_scaling(rope, section, context_length),
    )


def _scaling(rope: Fields, section: str, context_length: int) -> RopeScaling | None:
    key = f"{section}.".__add__
    for name in rope.values:
        if isinstance(rope.values[name], dict):
            rope.fail(name, "rope parameters by layer type are not supported yet")
    kind_key = key("rope_type" if key("rope_type") in rope else "type")
    kind = rope.optional_text(kind_key) or "default"
    if kind not in _SCALINGS:
        rope.fail(
            kind_key,
            f"rope scaling {kind[:40]!r} is not supported yet; supported: {', '.join(_SCALINGS)}",
        )
    if kind == "default":
        return None
    factor = rope.real(key("factor"), limits.MIN_SCALE, limits.MAX_SCALE)
    if kind == "linear":
        return RopeScaling(kind="linear", factor=factor)
    low = rope.real(key("low_freq_factor"), limits.MIN_SCALE, limits.MAX_SCALE)
    high = rope.real(key("high_freq_factor"), limits.MIN_SCALE, limits.MAX_SCALE)
    if low >= high:
        rope.fail(key("high_freq_factor"), f"is {high:g}, not above the low one, {low:g}")
    original = rope.optional_integer(key("original_max_position_embeddings"), 1, limits.MAX_CONTEXT)
    return RopeScaling(
        kind="llama3",
        factor=factor,
        low_freq_factor=low,
        high_freq_factor=high,
        original_context_length=context_length if original is None else original,
    )


def _token_ids(fields: Fields, key: str, vocab_size: int) -> tuple[int, ...]:
    """The id or list of ids ``key``, or none if it is absent."""
    value = fields.values.get(key)
    if value is None:
        return ()
    if not isinstance(value, list):
        return (fields.integer(key, 0, vocab_size - 1),)
    names = {f"{key}[{index}]": item for index, item in enumerate(value)}
    items = Fields(fields.file, names)
    return tuple(dict.fromkeys(items.integer(name, 0, vocab_size - 1) for name in names))
