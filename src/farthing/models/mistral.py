"""Mistral 7B, Nemo, Small and Ministral 8B (Jiang et al. 2023): Llama with windows, without biases.

Every layer sees ``sliding_window`` positions where there is a window at all; in Ministral
``layer_types`` says which do. GGUF files mostly call Mistral ``llama``, newer ones ``mistral3``.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from farthing.config import ModelConfig
from farthing.models import layers
from farthing.models.checkpoint import windows
from farthing.models.family import Family, GgufDialect, HuggingFaceDialect
from farthing.models.names import WeightNames
from farthing.program.builder import ProgramBuilder
from farthing.program.ops import Value

if TYPE_CHECKING:
    from farthing.models.checkpoint.fields import Fields


def build(p: ProgramBuilder, c: ModelConfig, w: WeightNames) -> Value:
    """The logits (R, vocab)."""
    x = p.embed(w.embed_tokens)
    p.tap(x, "embeddings")
    for i in range(c.num_layers):
        h = p.rms_norm(x, w[i].input_norm, c.rms_norm_eps)
        x = layers.attention(p, c, w[i], h, add=x)
        h = p.rms_norm(x, w[i].post_attention_norm, c.rms_norm_eps)
        x = layers.gated_mlp(p, c, w[i], h, add=x)
        p.tap(x, f"layers.{i}.residual")
    return layers.logits(p, c, w, x)


def _read(fields: Fields, c: ModelConfig) -> ModelConfig:
    c = replace(c, attention_bias=False, mlp_bias=False)
    sliding = windows.read_layer_types(fields, c.num_layers)
    return windows.with_window(c, windows.read_window(fields), sliding)


def _read_gguf(fields: Fields, c: ModelConfig) -> ModelConfig:
    key = "mistral3.attention.temperature_scale"
    if fields.optional_real(key, 0.0, 1e6):
        fields.fail(
            key, f"is {fields.values[key]}: scores that depend on the position are not supported"
        )
    return c


FAMILY = Family(
    "mistral",
    build,
    HuggingFaceDialect(
        ("MistralForCausalLM", "MinistralForCausalLM"),
        ("mistral", "ministral"),
        read=_read,
        defaults=MappingProxyType({"num_key_value_heads": 8, "sliding_window": 4096}),
    ),
    GgufDialect("mistral3", read=_read_gguf, interleaved_rope=True),
)
