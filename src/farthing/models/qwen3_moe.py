"""Qwen3-MoE (Yang et al. 2025): Qwen3 with a mixture of experts in most layers or all of them."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from farthing.config import ModelConfig
from farthing.models import experts, layers
from farthing.models.checkpoint import windows
from farthing.models.family import Family, GgufDialect, HuggingFaceDialect
from farthing.models.names import WeightNames
from farthing.program.builder import ProgramBuilder
from farthing.program.ops import Value

if TYPE_CHECKING:
    from farthing.models.checkpoint.fields import Fields


def build(p: ProgramBuilder, c: ModelConfig, w: WeightNames) -> Value:
    """The logits (R, vocab)."""
    bias, eps = c.attention_bias, c.rms_norm_eps
    x = p.embed(w.embed_tokens)
    p.tap(x, "embeddings")
    for i in range(c.num_layers):
        h = p.rms_norm(x, w[i].input_norm, eps)
        x = layers.attention(
            p,
            c,
            w[i],
            h,
            add=x,
            qkv_bias=bias,
            o_bias=bias,
            q_norm=w[i].q_norm,
            k_norm=w[i].k_norm,
        )
        h = p.rms_norm(x, w[i].post_attention_norm, eps)
        if c.layer_experts(i) is None:
            x = layers.gated_mlp(p, c, w[i], h, add=x)
        else:
            x = experts.moe(p, c, w[i], h, add=x)
        p.tap(x, f"layers.{i}.residual")
    return layers.logits(p, c, w, x)


def _read(fields: Fields, c: ModelConfig) -> ModelConfig:
    if fields.boolean("use_sliding_window", False):  # then all layers slide
        c = windows.with_window(c, windows.read_window(fields))
    return experts.read_experts(fields, c)


def _read_gguf(fields: Fields, c: ModelConfig) -> ModelConfig:
    return experts.read_gguf_experts(fields, c, "qwen3moe")


FAMILY = Family(
    "qwen3_moe",
    build,
    HuggingFaceDialect(
        ("Qwen3MoeForCausalLM",),
        ("qwen3_moe",),
        read=_read,
        defaults=MappingProxyType({"num_key_value_heads": 4, "sliding_window": 4096}),
    ),
    GgufDialect(
        "qwen3moe",
        read=_read_gguf,
        names={
            "attn_q_norm": "self_attn.q_norm",
            "attn_k_norm": "self_attn.k_norm",
            **experts.GGUF_NAMES,
        },
        tensors=experts.split_stacks,
        experts=True,
    ),
)
