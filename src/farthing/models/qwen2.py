"""Qwen2 and Qwen2.5 (Yang et al. 2024): q, k and v have biases, always; o has none."""

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
        x = layers.attention(p, c, w[i], h, add=x, qkv_bias=True)
        h = p.rms_norm(x, w[i].post_attention_norm, c.rms_norm_eps)
        x = layers.gated_mlp(p, c, w[i], h, add=x)
        p.tap(x, f"layers.{i}.residual")
    return layers.logits(p, c, w, x)


def _read(fields: Fields, c: ModelConfig) -> ModelConfig:
    c = windows.read_windows(fields, c)
    return replace(c, attention_bias=True)


FAMILY = Family(
    "qwen2",
    build,
    HuggingFaceDialect(
        ("Qwen2ForCausalLM",),
        ("qwen2",),
        read=_read,
        defaults=MappingProxyType({"sliding_window": 4096, "max_window_layers": 28}),
    ),
    GgufDialect("qwen2", attention_bias=True),
)
