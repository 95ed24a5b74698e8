"""OLMo 2 (Walsh et al. 2025): what a block adds is normed, and not what it reads.

q and k are normed before rope, all heads of a row together.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from farthing.config import ModelConfig
from farthing.models import layers
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
        norms = {"q_norm": w[i].whole_q_norm, "k_norm": w[i].whole_k_norm}
        a = layers.attention(p, c, w[i], x, add=None, qkv_bias=bias, o_bias=bias, **norms)
        x = p.add(x, p.rms_norm(a, w[i].post_attention_norm, eps))
        m = layers.gated_mlp(p, c, w[i], x, add=None)
        x = p.add(x, p.rms_norm(m, w[i].post_feedforward_norm, eps))
        p.tap(x, f"layers.{i}.residual")
    return layers.logits(p, c, w, x)


def _read_gguf(fields: Fields, c: ModelConfig) -> ModelConfig:
    if c.sliding_window is not None:
        problem = f"is {c.sliding_window}: windows make it an OLMo 3, which is not supported"
        fields.fail("olmo2.attention.sliding_window", problem)
    return c


FAMILY = Family(
    "olmo2",
    build,
    HuggingFaceDialect(("Olmo2ForCausalLM",), ("olmo2",)),
    GgufDialect(
        "olmo2",
        read=_read_gguf,
        names=MappingProxyType(
            {
                "attn_q_norm": "self_attn.q_norm",
                "attn_k_norm": "self_attn.k_norm",
                "post_attention_norm": "post_attention_layernorm",
                "post_ffw_norm": "post_feedforward_layernorm",
            }
        ),
        attention_bias=None,
    ),
)
