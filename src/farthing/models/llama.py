"""Llama 2 and 3 (Touvron et al. 2023; Grattafiori et al. 2024), and models shaped like them.

``attention_bias`` gives the q, k, v and o projections biases, ``mlp_bias`` gate, up and down, as in
Hugging Face's Llama.
"""

from __future__ import annotations

from farthing.config import ModelConfig
from farthing.models import layers
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
        x = layers.attention(p, c, w[i], h, add=x, qkv_bias=bias, o_bias=bias)
        h = p.rms_norm(x, w[i].post_attention_norm, eps)
        x = layers.gated_mlp(p, c, w[i], h, add=x, bias=c.mlp_bias)
        p.tap(x, f"layers.{i}.residual")
    return layers.logits(p, c, w, x)


FAMILY = Family(
    "llama",
    build,
    HuggingFaceDialect(("LlamaForCausalLM",), ("llama",)),
    GgufDialect("llama", interleaved_rope=True, attention_bias=None),
)
