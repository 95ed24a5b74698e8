"""What Gemma 2 and Gemma 3 have in common: their blocks, and how checkpoints speak of them.

Norms before and after each block ("sandwich"), embeddings scaled by the root of their width, GeGLU,
tied embeddings, layers that see a window between layers that see everything.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from farthing.config import ModelConfig
from farthing.models import layers
from farthing.models.checkpoint import limits, windows
from farthing.models.names import LayerNames, WeightNames
from farthing.program.builder import ProgramBuilder
from farthing.program.ops import Value, WeightSlot

if TYPE_CHECKING:
    from farthing.models.checkpoint.fields import Fields
    from farthing.models.family import Tensors

GGUF_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "post_attention_norm": "post_attention_layernorm",
        "ffn_norm": "pre_feedforward_layernorm",
        "post_ffw_norm": "post_feedforward_layernorm",
    }
)


def embed(p: ProgramBuilder, c: ModelConfig, w: WeightNames) -> Value:
    """Embeddings times the root of their width; the tap is ``embeddings``."""
    x = p.scale(p.embed(w.embed_tokens), c.embedding_scale)
    p.tap(x, "embeddings")
    return x


def layer(
    p: ProgramBuilder,
    c: ModelConfig,
    w: LayerNames,
    x: Value,
    *,
    q_norm: WeightSlot | None = None,
    k_norm: WeightSlot | None = None,
) -> Value:
    """``x + norm(block(norm(x)))``, first for attention, then for the feed-forward block."""
    eps = c.rms_norm_eps
    h = p.rms_norm(x, w.input_norm, eps)
    h = layers.attention(p, c, w, h, add=None, q_norm=q_norm, k_norm=k_norm)
    x = p.add(x, p.rms_norm(h, w.post_attention_norm, eps))
    h = p.rms_norm(x, w.pre_feedforward_norm, eps)
    h = layers.gated_mlp(p, c, w, h, add=None)
    x = p.add(x, p.rms_norm(h, w.post_feedforward_norm, eps))
    p.tap(x, f"layers.{w.index}.residual")
    return x


def read_config(fields: Fields, c: ModelConfig, sliding_layers: tuple[bool, ...]) -> ModelConfig:
    """``c`` with what both families have in their ``config.json``."""
    for key in ("attention_bias", "use_bidirectional_attention"):
        if fields.boolean(key, False):
            fields.fail(key, "is true, which is not supported")
    if c.activation != "gelu_tanh":
        fields.fail("hidden_activation", f"stands for {c.activation}; gelu_pytorch_tanh is needed")
    window = fields.optional_integer("sliding_window", 1, limits.MAX_CONTEXT)
    if window is None and any(sliding_layers):
        fields.fail("sliding_window", "is missing, though layers slide")
    scalar = fields.real("query_pre_attn_scalar", limits.MIN_SCALE, limits.MAX_SCALE)
    return replace(
        c,
        attention_scale=1 / math.sqrt(scalar),
        attention_softcap=_softcap(fields, "attn_logit_softcapping"),
        logit_softcap=_softcap(fields, "final_logit_softcapping"),
        embedding_scale=embedding_scale(c),
        sliding_window=window,
        sliding_layers=sliding_layers,
    )


@dataclass(frozen=True, slots=True)
class GgufDefaults:
    """What GGUF files of a family need not say, and what they cannot."""

    window: int | None
    period: int  # the last layer of each sees everything
    layers_of_27b: int
    attention_softcap: float | None = None
    logit_softcap: float | None = None


def read_gguf(fields: Fields, c: ModelConfig, defaults: GgufDefaults) -> ModelConfig:
    """``c`` with what both families have in their GGUF files.

    No key has the scale of the scores, which follows from the model: the 27B models, known by their
    number of layers, scale by ``hidden_size / num_heads`` rather than by the width of a head.
    """
    key = f"{c.architecture}.".__add__
    of_27b = c.num_layers == defaults.layers_of_27b
    scalar = c.hidden_size // c.num_heads if of_27b else c.head_dim
    if scalar == 0:
        fields.fail(
            key("attention.head_count"),
            f"is {c.num_heads}, more than the embedding length, {c.hidden_size}",
        )
    window, sliding = windows.read_gguf_windows(fields, c.architecture, c.num_layers)
    if key("attention.sliding_window") not in fields:
        window = defaults.window
    if sliding is None:
        sliding = windows.periodic(c.num_layers, defaults.period)
    return replace(
        c,
        activation="gelu_tanh",
        attention_scale=1 / math.sqrt(scalar),
        attention_softcap=_softcap(
            fields, key("attn_logit_softcapping"), defaults.attention_softcap
        ),
        logit_softcap=_softcap(fields, key("final_logit_softcapping"), defaults.logit_softcap),
        embedding_scale=embedding_scale(c),
        sliding_window=window,
        sliding_layers=() if window is None else sliding,
    )


def embedding_scale(c: ModelConfig) -> float:
    """The root of the embeddings' width; docs/decisions/gemma-embedding-scale.md says why so."""
    return math.sqrt(c.hidden_size)


def add_one_to_norms(config: ModelConfig, tensors: Tensors) -> Tensors:
    """Norms as the program multiplies by them: safetensors hold their distance from 1."""
    return {
        name: replace(tensor, plus=1.0) if name.endswith("norm.weight") else tensor
        for name, tensor in tensors.items()
    }


def _softcap(fields: Fields, key: str, default: float | None = None) -> float | None:
    """The cap; 0 stands for none."""
    if key not in fields:
        return default
    if fields.real(key, 0.0, limits.MAX_SCALE) == 0.0:
        return None
    return fields.real(key, limits.MIN_SCALE, limits.MAX_SCALE)
