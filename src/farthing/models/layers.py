"""Blocks that model families share. A model's file calls them or writes its own.

Each block places the tap points that calibration reads: the input of every linear operation, and
the residual stream after each layer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from farthing.config import ModelConfig
from farthing.models.names import LayerNames, WeightNames
from farthing.program.builder import ProgramBuilder
from farthing.program.ops import Value, WeightSlot

if TYPE_CHECKING:
    from farthing.models.checkpoint.fields import Fields


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


def read_windows(
    fields: Fields, c: ModelConfig, sliding: tuple[bool, ...] | None = None
) -> ModelConfig:
    """``c`` with the sliding windows of a Qwen-like ``config.json``.

    There are none unless ``use_sliding_window``. ``layer_types`` says which layers slide; where it
    is missing, ``sliding`` does, and without that, those from ``max_window_layers`` on slide.
    """
    types = read_layer_types(fields, c.num_layers)
    if not fields.boolean("use_sliding_window", False):
        if types and any(types):
            fields.fail("layer_types", "has sliding layers, but use_sliding_window is not true")
        return c
    window = read_window(fields)
    if window is None:
        return c
    sliding = types or sliding
    if sliding is None:
        first = fields.integer("max_window_layers", 0, 1 << 30)
        sliding = tuple(i >= first for i in range(c.num_layers))
    return with_window(c, window, sliding)


def read_window(fields: Fields) -> int | None:
    """Positions that a sliding layer sees, from ``sliding_window`` in a ``config.json``."""
    return fields.optional_integer("sliding_window", 1, 1 << 30)


def with_window(
    c: ModelConfig, window: int | None, sliding: tuple[bool, ...] | None = None
) -> ModelConfig:
    """``c`` with a window in the layers that are ``sliding``, by default all.

    A window of the whole context is none.
    """
    if window is None or window >= c.context_length or not (sliding is None or any(sliding)):
        return c
    layers = () if sliding is None or all(sliding) else sliding
    return replace(c, sliding_window=window, sliding_layers=layers)


def read_layer_types(fields: Fields, num_layers: int) -> tuple[bool, ...] | None:
    """Which layers slide, from ``layer_types`` in a ``config.json``; None if it is missing."""
    types = fields.values.get("layer_types")
    if types is None:
        return None
    known = ("full_attention", "sliding_attention")
    if not isinstance(types, list) or len(types) != num_layers:
        fields.fail("layer_types", f"must be a list of {num_layers} names, one for each layer")
    for index, name in enumerate(types):
        if name not in known:
            problem = f"is {str(name)[:40]!r}; known: {', '.join(known)}"
            fields.fail(f"layer_types[{index}]", problem)
    return tuple(name == "sliding_attention" for name in types)


def periodic(num_layers: int, period: int) -> tuple[bool, ...]:
    """Which layers slide, where all do but the last of each ``period``; 0: all."""
    return tuple(not period or (i + 1) % period != 0 for i in range(num_layers))
