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
    add: Value,
    qkv_bias: bool = False,
    o_bias: bool = False,
) -> Value:
    """``add + o(attend(qkv(h)))``; the taps are ``attention_input`` and ``attention_output``."""
    p.tap(h, f"layers.{w.index}.attention_input")
    qkv = p.linear(h, *w.qkv, biases=w.qkv_bias if qkv_bias else None)
    a = p.attention(
        qkv,
        layer=w.index,
        num_heads=c.num_heads,
        num_kv_heads=c.num_kv_heads,
        head_dim=c.head_dim,
        rope=c.rope,
    )
    p.tap(a, f"layers.{w.index}.attention_output")
    biases: list[WeightSlot] | None = [w.o_bias] if o_bias else None
    return p.linear(a, w.o, biases=biases, add=add)


def gated_mlp(p: ProgramBuilder, w: LayerNames, h: Value, *, add: Value) -> Value:
    """``add + down(silu(gate(h)) * up(h))``; the taps are ``mlp_input`` and ``mlp_hidden``."""
    p.tap(h, f"layers.{w.index}.mlp_input")
    a = p.gated(p.linear(h, *w.gate_up))
    p.tap(a, f"layers.{w.index}.mlp_hidden")
    return p.linear(a, w.down, add=add)


def logits(p: ProgramBuilder, c: ModelConfig, w: WeightNames, x: Value) -> Value:
    """Final norm, the hidden state asked for, and the logits; the tap is ``final_norm``."""
    x = p.rms_norm(x, w.final_norm, c.rms_norm_eps)
    p.tap(x, "final_norm")
    p.hidden_rows(x)
    return p.linear(p.logit_rows(x), w.lm_head)
