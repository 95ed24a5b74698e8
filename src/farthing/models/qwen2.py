"""Qwen2 and Qwen2.5 (Yang et al. 2024): q, k and v have biases, always; o has none."""

from __future__ import annotations

from farthing.config import ModelConfig
from farthing.models import layers
from farthing.models.names import WeightNames
from farthing.program.builder import ProgramBuilder
from farthing.program.ops import Value


def build(p: ProgramBuilder, c: ModelConfig, w: WeightNames) -> Value:
    """The logits (R, vocab)."""
    x = p.embed(w.embed_tokens)
    p.tap(x, "embeddings")
    for i in range(c.num_layers):
        h = p.rms_norm(x, w[i].input_norm, c.rms_norm_eps)
        x = layers.attention(p, c, w[i], h, add=x, qkv_bias=True)
        h = p.rms_norm(x, w[i].post_attention_norm, c.rms_norm_eps)
        x = layers.gated_mlp(p, w[i], h, add=x)
        p.tap(x, f"layers.{i}.residual")
    return layers.logits(p, c, w, x)
