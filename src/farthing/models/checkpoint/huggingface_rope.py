"""Rotary embeddings in a ``config.json``.

Keys and their defaults: ``modeling_rope_utils`` of transformers, releases 4 and 5 (``rope_theta``
and ``rope_scaling`` became ``rope_parameters`` in 5, with one set for each layer type where they
differ).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from farthing.config import Rope, RopeScaling
from farthing.models.checkpoint import limits
from farthing.models.checkpoint.fields import Fields
from farthing.program.rope import longrope_magnitude, yarn_magnitude

_SCALINGS = ("default", "linear", "llama3", "yarn", "longrope")
_GLOBAL, _LOCAL = "full_attention", "sliding_attention"
DEFAULT_THETA = 10000.0


def read_ropes(
    fields: Fields, head_dim: int, context_length: int, *, partial: bool
) -> tuple[Rope, Rope | None]:
    """The rope of the model and, if they have one of their own, that of its sliding layers.

    ``partial``: whether the family obeys ``partial_rotary_factor``.
    """
    section = "rope_parameters" if "rope_parameters" in fields else "rope_scaling"
    values = fields.values.get(section)
    if values is None:
        values = {}
    if not isinstance(values, dict):
        fields.fail(section, "must be an object")
    _refuse_another(fields, section, values)
    if not any(isinstance(value, dict) for value in values.values()):
        return _read_rope(fields, section, values, head_dim, context_length, partial), None
    for name, value in values.items():
        if name not in (_GLOBAL, _LOCAL) or not isinstance(value, dict):
            fields.fail(
                f"{section}.{name}",
                f"is not understood; rope parameters by layer type are of {_GLOBAL!r} and "
                f"{_LOCAL!r}",
            )
        if value.get("rope_theta") is None:  # defaults differ by type and family
            fields.fail(f"{section}.{name}.rope_theta", "is missing")
    if _GLOBAL not in values:
        fields.fail(f"{section}.{_GLOBAL}", "is missing")
    ropes = {
        name: _read_rope(fields, f"{section}.{name}", value, head_dim, context_length, partial)
        for name, value in values.items()
    }
    return ropes[_GLOBAL], ropes.get(_LOCAL)


def _refuse_another(fields: Fields, section: str, values: Mapping[str, object]) -> None:
    """Refuses a ``rope_scaling`` beside ``rope_parameters`` that says more or something else."""
    other = fields.values.get("rope_scaling") or {}
    if section == "rope_scaling" or not other:
        return
    if not isinstance(other, dict) or any(values.get(key) != other[key] for key in other):
        fields.fail("rope_scaling", f"does not agree with {section}; write there what it says")


def _read_rope(
    fields: Fields,
    section: str,
    values: Mapping[str, object],
    head_dim: int,
    context_length: int,
    partial: bool,
) -> Rope:
    inner = {f"{section}.{key}": value for key, value in values.items()}
    rope = Fields(fields.file, inner, fields.offsets)
    key = f"{section}.".__add__
    theta = rope.optional_real(key("rope_theta"), limits.MIN_THETA, limits.MAX_THETA)
    if theta is None:
        theta = fields.optional_real("rope_theta", limits.MIN_THETA, limits.MAX_THETA)
    dim = _rotated(fields, rope, section, head_dim, partial)
    return Rope(
        theta=DEFAULT_THETA if theta is None else theta,
        dim=dim,
        scaling=_scaling(fields, rope, section, dim, context_length),
    )


def _rotated(fields: Fields, rope: Fields, section: str, head_dim: int, partial: bool) -> int:
    """Dimensions of a head that are rotated."""
    holder, name = rope, f"{section}.partial_rotary_factor"
    if name not in rope:
        holder, name = fields, "partial_rotary_factor"
    part = holder.optional_real(name, 0.0, 1.0)
    if part is None or part == 1.0:
        return head_dim
    if not partial:
        holder.fail(name, f"is {part:g}; this architecture rotates whole heads")
    dim = int(head_dim * part)
    if dim < 2 or dim % 2:
        problem = f"is {part:g}, which rotates {dim} of {head_dim} dimensions"
        holder.fail(name, f"{problem}; an even number is needed")
    return dim


def _scaling(
    fields: Fields, rope: Fields, section: str, dim: int, context_length: int
) -> RopeScaling | None:
    key = f"{section}.".__add__
    kind_key = key("rope_type" if key("rope_type") in rope else "type")
    kind = rope.optional_text(kind_key) or "default"
    kind = "longrope" if kind == "su" else kind  # its name before there was a paper
    original = _original_context(fields, rope, key("original_max_position_embeddings"))
    original = context_length if original is None else original
    if kind not in _SCALINGS:
        known = ", ".join(_SCALINGS)
        rope.fail(kind_key, f"rope scaling {kind[:40]!r} is not supported; supported: {known}")
    match kind:
        case "linear":
            return RopeScaling(kind, factor=_factor(rope, key("factor")))
        case "llama3":
            return _llama3(rope, section, original)
        case "yarn":
            return _yarn(rope, section, original, context_length)
        case "longrope":
            return _longrope(rope, section, dim, original, context_length)
    return None


def _original_context(fields: Fields, rope: Fields, key: str) -> int | None:
    """Tokens of the context a scaled model was first trained with; the outer place wins."""
    outer = fields.optional_integer("original_max_position_embeddings", 1, limits.MAX_CONTEXT)
    inner = rope.optional_integer(key, 1, limits.MAX_CONTEXT)
    return inner if outer is None else outer


def _factor(rope: Fields, key: str) -> float:
    return rope.real(key, limits.MIN_SCALE, limits.MAX_SCALE)


def _optional_factor(rope: Fields, key: str) -> float | None:
    return rope.optional_real(key, limits.MIN_SCALE, limits.MAX_SCALE)


def _llama3(rope: Fields, section: str, original: int) -> RopeScaling:
    low = _factor(rope, f"{section}.low_freq_factor")
    high = _factor(rope, f"{section}.high_freq_factor")
    if low >= high:
        problem = f"is {high:g}, not above the low one, {low:g}"
        rope.fail(f"{section}.high_freq_factor", problem)
    return RopeScaling(
        kind="llama3",
        factor=_factor(rope, f"{section}.factor"),
        low_freq_factor=low,
        high_freq_factor=high,
        original_context_length=original,
    )


def _yarn(rope: Fields, section: str, original: int, context_length: int) -> RopeScaling:
    key = f"{section}.".__add__
    factor = _optional_factor(rope, key("factor")) or context_length / original
    magnitude = _optional_factor(rope, key("attention_factor"))
    if magnitude is None:
        both = [_optional_factor(rope, key(name)) for name in ("mscale", "mscale_all_dim")]
        over, under = both if all(both) else (1.0, None)
        magnitude = yarn_magnitude(factor, over or 1.0)
        if under is not None:
            magnitude /= yarn_magnitude(factor, under)
    fast = _optional_factor(rope, key("beta_fast")) or 32.0
    slow = _optional_factor(rope, key("beta_slow")) or 1.0
    if slow >= fast:
        rope.fail(key("beta_fast"), f"is {fast:g}, not above beta_slow, {slow:g}")
    return RopeScaling(
        kind="yarn",
        factor=factor,
        original_context_length=original,
        beta_fast=fast,
        beta_slow=slow,
        truncate=rope.boolean(key("truncate"), True),
        magnitude=magnitude,
    )


def _longrope(
    rope: Fields, section: str, dim: int, original: int, context_length: int
) -> RopeScaling:
    factor = _optional_factor(rope, f"{section}.factor") or context_length / original
    magnitude = _optional_factor(rope, f"{section}.attention_factor")
    return RopeScaling(
        kind="longrope",
        factor=factor,
        original_context_length=original,
        factors=_factors(rope, f"{section}.long_factor", dim),
        short_factors=_factors(rope, f"{section}.short_factor", dim),
        magnitude=longrope_magnitude(factor, original) if magnitude is None else magnitude,
    )


def _factors(rope: Fields, key: str, dim: int) -> tuple[float, ...]:
    rope.require(key)
    values = rope.values[key]
    if not isinstance(values, list) or len(values) != dim // 2:
        count = len(values) if isinstance(values, list) else "no list"
        rope.fail(key, f"must be a list of {dim // 2} numbers, is {count}")
    inner = {f"{key}[{i}]": value for i, value in enumerate(values)}
    items = Fields(rope.file, inner, rope.offsets)
    # float32 is what transformers makes of them, and how GGUF files have them.
    return tuple(float(np.float32(_factor(items, name))) for name in items.values)
