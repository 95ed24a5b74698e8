"""Granite 3 (Granite Team, IBM 2024): Llama with scales.

Embeddings, scores, what a block adds, and logits are each multiplied by a number of their own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from farthing.config import ModelConfig
from farthing.models import layers
from farthing.models.family import Family, GgufDialect, HuggingFaceDialect
from farthing.models.names import WeightNames
from farthing.program.builder import ProgramBuilder
from farthing.program.ops import Value

if TYPE_CHECKING:
    from farthing.models.checkpoint.fields import Fields

_MIN_SCALE, _MAX_SCALE = 1e-6, 1e6


def build(p: ProgramBuilder, c: ModelConfig, w: WeightNames) -> Value:
    """The logits (R, vocab)."""
    bias, eps = c.attention_bias, c.rms_norm_eps
    x = p.scale(p.embed(w.embed_tokens), c.embedding_scale)
    p.tap(x, "embeddings")
    for i in range(c.num_layers):
        h = p.rms_norm(x, w[i].input_norm, eps)
        a = layers.attention(p, c, w[i], h, add=None, qkv_bias=bias, o_bias=bias)
        x = p.add(x, p.scale(a, c.residual_scale))
        h = p.rms_norm(x, w[i].post_attention_norm, eps)
        m = layers.gated_mlp(p, c, w[i], h, add=None, bias=c.mlp_bias)
        x = p.add(x, p.scale(m, c.residual_scale))
        p.tap(x, f"layers.{i}.residual")
    return p.scale(layers.logits(p, c, w, x), c.logit_scale)


def _read(fields: Fields, c: ModelConfig) -> ModelConfig:
    def scale(key: str) -> float:
        value = fields.optional_real(key, _MIN_SCALE, _MAX_SCALE)
        return 1.0 if value is None else value

    return replace(
        c,
        attention_scale=scale("attention_multiplier"),
        embedding_scale=scale("embedding_multiplier"),
        residual_scale=scale("residual_multiplier"),
        logit_scale=1.0 / scale("logits_scaling"),
    )


def _read_gguf(fields: Fields, c: ModelConfig) -> ModelConfig:
    def scale(name: str) -> float | None:
        """The number, or None if it is absent or 0, which means the same."""
        key = f"granite.{name}"
        if not fields.optional_real(key, 0.0, _MAX_SCALE):
            return None
        return fields.real(key, _MIN_SCALE, _MAX_SCALE)

    rotates = fields.boolean("granite.rope.scaling.finetuned", True)
    return replace(
        c,
        attention_scale=scale("attention.scale"),
        embedding_scale=scale("embedding_scale") or 1.0,
        residual_scale=scale("residual_scale") or 1.0,
        logit_scale=1.0 / (scale("logit_scale") or 1.0),
        rope_layers=() if rotates else (False,) * c.num_layers,
    )


FAMILY = Family(
    "granite",
    build,
    HuggingFaceDialect(("GraniteForCausalLM",), ("granite",), read=_read),
    GgufDialect("granite", read=_read_gguf, interleaved_rope=True, attention_bias=None),
)
