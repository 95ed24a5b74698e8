"""Gemma 3 (Kamath et al. 2025): norms of q and k, a rope for layers that slide, five in six do.

Of a model that also sees, the text model is read.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from farthing.config import ModelConfig, Rope
from farthing.models import gemma, layers
from farthing.models.checkpoint import limits, windows
from farthing.models.family import Family, GgufDialect, HuggingFaceDialect
from farthing.models.names import WeightNames
from farthing.program.builder import ProgramBuilder
from farthing.program.ops import Value

if TYPE_CHECKING:
    from farthing.models.checkpoint.fields import Fields
    from farthing.models.family import Tensors

_PERIOD = 6
_LOCAL_THETA = 10_000.0
_TEXT_PREFIXES = (("language_model.", ""), ("model.language_model.", "model."))
_OTHER_PARTS = ("vision_tower.", "multi_modal_projector.")


def build(p: ProgramBuilder, c: ModelConfig, w: WeightNames) -> Value:
    """The logits (R, vocab)."""
    x = gemma.embed(p, c, w)
    for i in range(c.num_layers):
        x = gemma.layer(p, c, w[i], x, q_norm=w[i].q_norm, k_norm=w[i].k_norm)
    return layers.logits(p, c, w, x)


def _read(fields: Fields, c: ModelConfig) -> ModelConfig:
    sliding = windows.read_layer_types(fields, c.num_layers)
    if sliding is None:
        period = fields.integer("sliding_window_pattern", 1, limits.MAX_LAYERS)
        sliding = windows.periodic(c.num_layers, period)
    local = c.local_rope
    if local is None:  # written before ropes were listed by type of layer
        theta = fields.real("rope_local_base_freq", limits.MIN_THETA, limits.MAX_THETA)
        local = Rope(theta, c.head_dim)
    c = replace(gemma.read_config(fields, c, sliding), local_rope=local)
    return _uncapped(fields, c, "attn_logit_softcapping")


def _read_gguf(fields: Fields, c: ModelConfig) -> ModelConfig:
    c = gemma.read_gguf(fields, c, gemma.GgufDefaults(None, _PERIOD, layers_of_27b=62))
    c = _uncapped(fields, c, "gemma3.attn_logit_softcapping")
    if c.sliding_window is None:
        return c
    key = "gemma3.rope.freq_base_swa"
    theta = fields.optional_real(key, limits.MIN_THETA, limits.MAX_THETA)
    return replace(c, local_rope=Rope(_LOCAL_THETA if theta is None else theta, c.head_dim))


def _uncapped(fields: Fields, c: ModelConfig, key: str) -> ModelConfig:
    """``c``, whose scores have no soft cap: other readers pass over one."""
    if c.attention_softcap is not None:
        fields.fail(key, f"is {c.attention_softcap:g}; Gemma 3 has none")
    return c


def _text_tensors(config: ModelConfig, tensors: Tensors) -> Tensors:
    """The tensors of the text model, which those of a model that sees have a prefix for."""
    text = {}
    for name, tensor in tensors.items():
        if name.removeprefix("model.").startswith(_OTHER_PARTS):
            continue
        for prefix, plain in _TEXT_PREFIXES:
            if name.startswith(prefix):
                name = plain + name.removeprefix(prefix)
                break
        text[name] = tensor
    return gemma.add_one_to_norms(config, text)


FAMILY = Family(
    "gemma3",
    build,
    HuggingFaceDialect(
        ("Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"),
        ("gemma3_text", "gemma3"),
        read=_read,
        tensors=_text_tensors,
        defaults=MappingProxyType(
            {
                "vocab_size": 262_208,
                "num_attention_heads": 8,
                "num_key_value_heads": 4,
                "head_dim": 256,
                "hidden_activation": "gelu_pytorch_tanh",
                "max_position_embeddings": 131_072,
                "rms_norm_eps": 1e-6,
                "rope_theta": 1_000_000.0,
                "rope_local_base_freq": _LOCAL_THETA,
                "tie_word_embeddings": True,
                "query_pre_attn_scalar": 256,
                "sliding_window": 4096,
                "sliding_window_pattern": _PERIOD,
                "bos_token_id": 2,
                "eos_token_id": 1,
            }
        ),
        section="text_config",
        activation="hidden_activation",
    ),
    GgufDialect(
        "gemma3",
        read=_read_gguf,
        names=MappingProxyType(
            {
                **gemma.GGUF_NAMES,
                "attn_q_norm": "self_attn.q_norm",
                "attn_k_norm": "self_attn.k_norm",
            }
        ),
    ),
)
