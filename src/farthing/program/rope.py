"""Inverse frequencies of rotary embeddings under each scaling rule, fixed at load.

Only IEEE additions, multiplications, divisions and comparisons, so every machine gets the same
bits from the same base frequencies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from farthing.config import Rope, RopeScaling
from farthing.errors import InvalidParameterError

_TWO_PI = 6.283185307179586
_LN_2 = 0.6931471805599453


def scale_inverse_frequencies(base: Sequence[float], rope: Rope) -> list[float]:
    """``base[i]`` = theta ** (-2 i / dim), changed by the scaling of ``rope``. Radians a token.

    ``llama3`` is the rule published with Llama 3.1: wavelengths longer than
    ``original_context_length / low_freq_factor`` tokens are stretched by ``factor``, those shorter
    than ``original_context_length / high_freq_factor`` are kept, and those between are blended.
    ``yarn``: pairs that turn more than ``beta_fast`` times within the original context are kept,
    those that turn less than ``beta_slow`` times are divided by ``factor``, the blend between is
    linear in the index of the pair.

    Raises :class:`InvalidParameterError` for factors that do not fit and for a ``longrope`` that
    :meth:`Rope.at_context` has not fixed.
    """
    scaling = rope.scaling
    if scaling is None:
        return list(base)
    match scaling.kind:
        case "linear":
            return [f / scaling.factor for f in base]
        case "factors":
            if len(scaling.factors) != len(base):
                raise InvalidParameterError(
                    f"rope factors: {len(scaling.factors)} given for {len(base)} frequencies"
                )
            return [f / divisor for f, divisor in zip(base, scaling.factors, strict=True)]
        case "llama3":
            return [_llama3(f, scaling) for f in base]
        case "yarn":
            first, last = _blended_pairs(rope, scaling)
            divided = [min(max((i - first) / (last - first), 0.0), 1.0) for i in range(len(base))]
            return [
                part * (f / scaling.factor) + (1 - part) * f
                for f, part in zip(base, divided, strict=True)
            ]
        case "longrope":
            raise InvalidParameterError("rope.scaling longrope: not yet fixed by Rope.at_context")


def natural_log(x: float) -> float:
    """Natural logarithm of a finite x > 0, in double: a series over IEEE operations alone."""
    mantissa, exponent = math.frexp(x)  # exact: x = mantissa * 2 ** exponent
    if mantissa < 0.7071067811865476:
        mantissa, exponent = 2 * mantissa, exponent - 1
    ratio = (mantissa - 1) / (mantissa + 1)
    square, total = ratio * ratio, 0.0
    for k in range(41, 0, -2):  # |ratio| < 0.172: the terms left out are below 2 ** -100
        total = total * square + 1 / k
    return exponent * _LN_2 + 2 * ratio * total


def yarn_magnitude(factor: float, weight: float = 1.0) -> float:
    """What YaRN multiplies rotated vectors by: 0.1 weight ln(factor) + 1, and 1 up to factor 1.

    Peng et al. 2023, "YaRN", section 3.4; ``weight`` is ``mscale`` in configurations.
    """
    return 1.0 if factor <= 1.0 else 0.1 * weight * natural_log(factor) + 1.0


def longrope_magnitude(factor: float, original_context_length: int) -> float:
    """What longrope multiplies rotated vectors by: sqrt(1 + ln(factor) / ln(original)).

    Ding et al. 2024, "LongRoPE", as released with Phi-3.
    """
    if factor <= 1.0 or original_context_length <= 1:
        return 1.0
    return math.sqrt(1.0 + natural_log(factor) / natural_log(original_context_length))


def _llama3(frequency: float, scaling: RopeScaling) -> float:
    wavelength = _TWO_PI / frequency
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    if wavelength < scaling.original_context_length / high:
        return frequency
    if wavelength > scaling.original_context_length / low:
        return frequency / scaling.factor
    keep = (scaling.original_context_length / wavelength - low) / (high - low)
    return (1 - keep) * frequency / scaling.factor + keep * frequency


def _blended_pairs(rope: Rope, scaling: RopeScaling) -> tuple[float, float]:
    """Where YaRN's blend begins and ends, as (fractional) indices of pairs."""
    first, last = (
        rope.dim
        * natural_log(scaling.original_context_length / (turns * _TWO_PI))
        / (2 * natural_log(rope.theta))
        for turns in (scaling.beta_fast, scaling.beta_slow)
    )
    if scaling.truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, rope.dim - 1)
    return (first, last) if first != last else (first, last + 0.001)
