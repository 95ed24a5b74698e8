"""Blocks that model families share. A model's file calls them or writes its own.

Each block places the tap points that calibration reads: the input of every linear operation, and
the residual stream after each layer.
"""

from __future__ import annotations

from farthing.config import ModelConfig
from farthing.models.names import LayerNames, WeightNames
from farthing.program.builder import ProgramBuilder
from farthing.program.ops import Value, WeightSlot


def attention(
    p: ProgramBuilder,
    c: ModelConfig,
    w: LayerNames,
    h: Value,
    *,
    add: Value | None,
    qkv_bias: bool = False,
    o_bias: bool = False,
    q_norm: WeightSlot | None = None,
    k_norm: WeightSlot | None = None,
) -> Value:
    """``add + o(attend(qkv(h)))``; the taps are ``attention_input`` and ``attention_output``.

    Rope, window, scale and soft cap of the layer are the configuration's.
    """
    p.tap(h, f"layers.{w.index}.attention_input")
    qkv = p.linear(h, *w.qkv, biases=w.qkv_bias if qkv_bias else None)
    a = p.attention(
        qkv,
        layer=w.index,
        num_heads=c.num_heads,
        num_kv_heads=c.num_kv_heads,
        head_dim=c.head_dim,
        rope=c.layer_rope(w.index),
        scale=c.attention_scale,
        window=c.window(w.index),
        softcap=c.attention_softcap,
        q_norm=q_norm,
        k_norm=k_norm,
        norm_eps=c.rms_norm_eps,
    )
    p.tap(a, f"layers.{w.index}.attention_output")
    biases: list[WeightSlot] | None = [w.o_bias] if o_bias else None
    return p.linear(a, w.o, biases=biases, add=add)


def gated_mlp(
    p: ProgramBuilder,
    c: ModelConfig,
    w: LayerNames,
    h: Value,
    *,
    add: Value | None,
    bias: bool = False,
) -> Value:
    """``add + down(act(gate(h)) * up(h))``; the taps are ``mlp_input`` and ``mlp_hidden``."""
    p.tap(h, f"layers.{w.index}.mlp_input")
    y = p.linear(h, *w.gate_up, biases=w.gate_up_bias if bias else None)
    a = p.gated(y, c.activation)
    p.tap(a, f"layers.{w.index}.mlp_hidden")
    return p.linear(a, w.down, biases=[w.down_bias] if bias else None, add=add)


def logits(p: ProgramBuilder, c: ModelConfig, w: WeightNames, x: Value) -> Value:
    """Final norm, the hidden state asked for, and the logits; the tap is ``final_norm``.

    The soft cap is the configuration's.
    """
    x = p.rms_norm(x, w.final_norm, c.rms_norm_eps)
    p.tap(x, "final_norm")
    p.hidden_rows(x)
    y = p.linear(p.logit_rows(x), w.lm_head)
    return y if c.logit_softcap is None else p.softcap(y, c.logit_softcap)
