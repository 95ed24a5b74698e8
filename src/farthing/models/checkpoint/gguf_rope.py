"""Rotary embeddings in the metadata and tensors of a GGUF file."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from farthing.config import Rope, RopeScaling
from farthing.errors import ModelFormatError
from farthing.models.checkpoint import limits
from farthing.models.checkpoint.checkpoint import (
    ROPE_FACTORS,
    ROPE_LONG,
    ROPE_SHORT,
    AnyTensor,
)
from farthing.models.checkpoint.fields import Fields
from farthing.models.checkpoint.packed_tensor import PackedTensor
from farthing.program.rope import longrope_magnitude, yarn_magnitude

DEFAULT_THETA = 10000.0
_KINDS = ("none", "linear", "yarn", "longrope")


def read_rope(
    fields: Fields,
    architecture: str,
    head_dim: int,
    context_length: int,
    tensors: Mapping[str, AnyTensor],
) -> Rope:
    """The rope of the model, from the keys ``{architecture}.rope.*`` and the factor tensors.

    Raises :class:`ModelFormatError` naming the key or tensor.
    """
    key = f"{architecture}.rope.".__add__
    dim = fields.optional_integer(key("dimension_count"), 2, head_dim) or head_dim
    if dim % 2:
        fields.fail(key("dimension_count"), f"is {dim}; an even number is needed")
    base = fields.optional_real(key("freq_base"), limits.MIN_THETA, limits.MAX_THETA)
    theta = DEFAULT_THETA if base is None else base
    kind = fields.optional_text(key("scaling.type"))
    if kind is not None and kind not in _KINDS:
        known = ", ".join(map(repr, _KINDS))
        fields.fail(key("scaling.type"), f"is {kind[:40]!r}; supported are {known}")
    original = fields.optional_integer(
        key("scaling.original_context_length"), 1, limits.MAX_CONTEXT
    )
    original = original or context_length
    if ROPE_LONG in tensors or ROPE_SHORT in tensors or kind == "longrope":
        scaling = _longrope(fields, key("scaling."), dim, original, context_length, tensors)
        return Rope(theta, dim, scaling)
    if kind == "yarn":
        return Rope(theta, dim, _yarn(fields, key("scaling."), original, context_length))
    factor = 1.0 if kind == "none" else _linear_factor(fields, architecture)
    if ROPE_FACTORS in tensors:
        scaled = tuple(factor * value for value in _factors(tensors[ROPE_FACTORS], dim))
        if any(value != 1.0 for value in scaled):
            return Rope(theta, dim, RopeScaling(kind="factors", factors=scaled))
    elif factor != 1.0:
        return Rope(theta, dim, RopeScaling(kind="linear", factor=factor))
    return Rope(theta, dim)


def _linear_factor(fields: Fields, architecture: str) -> float:
    """What rope divides positions by: 1 if there is no scaling."""
    for name in ("scaling.factor", "scale_linear"):
        key = f"{architecture}.rope.{name}"
        if key in fields and fields.real(key, 0.0, limits.MAX_SCALE) != 0.0:
            return fields.real(key, limits.MIN_SCALE, limits.MAX_SCALE)
    return 1.0


def _yarn(fields: Fields, prefix: str, original: int, context_length: int) -> RopeScaling:
    factor = fields.optional_real(f"{prefix}factor", limits.MIN_SCALE, limits.MAX_SCALE)
    factor = factor or context_length / original
    extrapolation = fields.optional_real(f"{prefix}yarn_ext_factor", -1.0, limits.MAX_SCALE)
    if extrapolation not in (None, -1.0, 1.0):  # -1: not set
        problem = f"is {extrapolation:g}; only 1 is supported"
        fields.fail(f"{prefix}yarn_ext_factor", problem)
    fast = fields.optional_real(f"{prefix}yarn_beta_fast", limits.MIN_SCALE, limits.MAX_SCALE)
    slow = fields.optional_real(f"{prefix}yarn_beta_slow", limits.MIN_SCALE, limits.MAX_SCALE)
    fast, slow = fast or 32.0, slow or 1.0
    if slow >= fast:
        fields.fail(f"{prefix}yarn_beta_fast", f"is {fast:g}, not above the slow one, {slow:g}")
    return RopeScaling(
        kind="yarn",
        factor=factor,
        original_context_length=original,
        beta_fast=fast,
        beta_slow=slow,
        magnitude=_yarn_magnitude(fields, prefix, factor),
    )


def _yarn_magnitude(fields: Fields, prefix: str, factor: float) -> float:
    """What rotated vectors are multiplied by.

    ``yarn_attn_factor`` takes the place of what YaRN prescribes, as "attention_factor" does in a
    ``config.json``; ``yarn_log_multiplier`` stands for "mscale_all_dim" there; ``attn_factor``
    multiplies either.
    """
    low, high = limits.MIN_SCALE, limits.MAX_SCALE
    magnitude = fields.optional_real(f"{prefix}yarn_attn_factor", low, high)
    if magnitude is None:
        weight = fields.optional_real(f"{prefix}yarn_log_multiplier", 0.0, high) or 0.0
        magnitude = yarn_magnitude(factor) / yarn_magnitude(factor, weight)
    return magnitude * (fields.optional_real(f"{prefix}attn_factor", low, high) or 1.0)


def _longrope(
    fields: Fields,
    prefix: str,
    dim: int,
    original: int,
    context_length: int,
    tensors: Mapping[str, AnyTensor],
) -> RopeScaling:
    for name in (ROPE_LONG, ROPE_SHORT):
        if name not in tensors:
            raise ModelFormatError(fields.file, "is missing", field=f"tensor {name}")
    factor = fields.optional_real(f"{prefix}factor", limits.MIN_SCALE, limits.MAX_SCALE)
    factor = factor or context_length / original
    attention = fields.optional_real(f"{prefix}attn_factor", limits.MIN_SCALE, limits.MAX_SCALE)
    magnitude = longrope_magnitude(factor, original)
    if attention is not None and np.float32(attention) != np.float32(magnitude):
        magnitude = attention  # else it is what the file says, before its rounding to float32
    return RopeScaling(
        kind="longrope",
        factor=factor,
        original_context_length=original,
        factors=tuple(_factors(tensors[ROPE_LONG], dim)),
        short_factors=tuple(_factors(tensors[ROPE_SHORT], dim)),
        magnitude=magnitude,
    )


def _factors(tensor: AnyTensor, dim: int) -> list[float]:
    if isinstance(tensor, PackedTensor) or tensor.shape != (dim // 2,):
        raise ModelFormatError(
            tensor.file,
            f"has shape {tensor.shape} where ({dim // 2},) is needed",
            field=f"tensor {tensor.name}",
            offset=tensor.offset,
        )
    values: list[float] = tensor.dequantize().tolist()
    for index, value in enumerate(values):
        if not limits.MIN_SCALE <= value <= limits.MAX_SCALE:  # a NaN is in no range
            raise ModelFormatError(
                tensor.file,
                f"factor {index} is {value:g}, outside {limits.MIN_SCALE:g} to "
                f"{limits.MAX_SCALE:g}",
                field=f"tensor {tensor.name}",
                offset=tensor.offset,
            )
    return values
