"""Inverse frequencies of rotary embeddings under each scaling rule, fixed at load.

Only IEEE additions, multiplications, divisions and comparisons, so every machine gets the same
bits from the same base frequencies.
"""

from __future__ import annotations

from collections.abc import Sequence

from farthing.config import RopeScaling
from farthing.errors import InvalidParameterError

_TWO_PI = 6.283185307179586


def scale_inverse_frequencies(base: Sequence[float], scaling: RopeScaling | None) -> list[float]:
    """``base[i]`` = theta ** (-2 i / dim), changed by ``scaling``. Radians a token.

    ``llama3`` is the rule published with Llama 3.1: wavelengths longer than
    ``original_context_length / low_freq_factor`` tokens are stretched by ``factor``, those shorter
    than ``original_context_length / high_freq_factor`` are kept, and those between are blended.
    """
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


def _llama3(frequency: float, scaling: RopeScaling) -> float:
    wavelength = _TWO_PI / frequency
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    if wavelength < scaling.original_context_length / high:
        return frequency
    if wavelength > scaling.original_context_length / low:
        return frequency / scaling.factor
    keep = (scaling.original_context_length / wavelength - low) / (high - low)
    return (1 - keep) * frequency / scaling.factor + keep * frequency
