"""Qwen3 without experts (Yang et al. 2025): q and k heads are normed, each by itself."""

from __future__ import annotations

from types import MappingProxyType

from farthing.config import ModelConfig
from farthing.models import layers
from farthing.models.checkpoint import windows
from farthing.models.family import Family, GgufDialect, HuggingFaceDialect
from farthing.models.names import WeightNames
from farthing.program.builder import ProgramBuilder
from farthing.program.ops import Value


def build(p: ProgramBuilder, c: ModelConfig, w: WeightNames) -> Value:
    """The logits (R, vocab)."""
    bias, eps = c.attention_bias, c.rms_norm_eps
    x = p.embed(w.embed_tokens)
    p.tap(x, "embeddings")
    for i in range(c.num_layers):
        h = p.rms_norm(x, w[i].input_norm, eps)
        norms = {"q_norm": w[i].q_norm, "k_norm": w[i].k_norm}
        x = layers.attention(p, c, w[i], h, add=x, qkv_bias=bias, o_bias=bias, **norms)
        h = p.rms_norm(x, w[i].post_attention_norm, eps)
        x = layers.gated_mlp(p, c, w[i], h, add=x)
        p.tap(x, f"layers.{i}.residual")
    return layers.logits(p, c, w, x)


FAMILY = Family(
    "qwen3",
    build,
    HuggingFaceDialect(
        ("Qwen3ForCausalLM",),
        ("qwen3",),
        read=windows.read_windows,
        defaults=MappingProxyType(
            {
                "num_key_value_heads": 32,
                "head_dim": 128,
                "sliding_window": 4096,
                "max_window_layers": 28,
            }
        ),
    ),
    GgufDialect(
        "qwen3",
        names=MappingProxyType(
            {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
        ),
        attention_bias=None,
    ),
)
