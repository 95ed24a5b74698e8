"""Sliding windows: which layers have one, in a ``config.json`` and in a GGUF file."""

from __future__ import annotations

from dataclasses import replace

from farthing.config import ModelConfig
from farthing.models.checkpoint import limits
from farthing.models.checkpoint.fields import Fields
from farthing.models.checkpoint.gguf_metadata import NumberArray, ValueType


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


def read_gguf_windows(
    fields: Fields, architecture: str, num_layers: int
) -> tuple[int | None, tuple[bool, ...] | None]:
    """Positions that a sliding layer sees (None: all), and which layers slide (None: unsaid).

    The pattern is a list with true for each layer that slides, or a number n: every nth layer does
    not, and with 0 all do. Raises :class:`ModelFormatError` naming the key.
    """
    key = f"{architecture}.attention.sliding_window"
    window = fields.optional_integer(key, 0, 1 << 31) or None
    pattern = fields.values.get(f"{key}_pattern")
    if pattern is None:
        return window, None
    if isinstance(pattern, NumberArray):
        if pattern.kind in (ValueType.FLOAT32, ValueType.FLOAT64):
            fields.fail(f"{key}_pattern", "must be an array of booleans")
        if len(pattern) != num_layers:
            problem = f"has {len(pattern)} elements for {num_layers} layers"
            fields.fail(f"{key}_pattern", problem)
        return window, tuple(flag != 0 for flag in pattern.integers())
    period = fields.integer(f"{key}_pattern", 0, limits.MAX_LAYERS)
    return window, periodic(num_layers, period)
