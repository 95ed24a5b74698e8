"""Sliding windows in the metadata of a GGUF file."""

from __future__ import annotations

from farthing.models.checkpoint import limits
from farthing.models.checkpoint.fields import Fields
from farthing.models.checkpoint.gguf_metadata import NumberArray, ValueType
from farthing.models.layers import periodic


def read_windows(
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
