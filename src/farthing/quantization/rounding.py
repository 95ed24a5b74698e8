"""Weights to codes and scales, without a look at what the model is used for."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from farthing import _native
from farthing.errors import InvalidParameterError
from farthing.quantization.schemes import Scheme
from farthing.quantization.tensor import QuantizedTensor

RoundingMethod = Literal["absmax", "mse", "weighted"]
"""How a scale is chosen. ``absmax``: so that nothing is clipped (with a minimum: from the smallest
value to the largest). ``mse``: so that the squared error is the least that a search finds.
``weighted``: the same where an error counts by the magnitude of the weight it is made on, as large
weights carry most of what a matrix does. Neither search is ever worse than ``absmax`` by its own
measure."""

ROUNDING_METHODS: tuple[RoundingMethod, ...] = get_args(RoundingMethod)


def can_round_to(scheme: Scheme) -> bool:
    """Whether :func:`round_weights` knows the scheme: served codes with one level of scales."""
    return scheme.served and scheme.scale_levels == 1


def round_weights(
    values: npt.NDArray[np.float32], scheme: Scheme, method: RoundingMethod
) -> QuantizedTensor:
    """Rounds ``values`` (rows, cols), finite, to ``scheme``. Rows do not depend on each other.

    Codes are made with the scale as fp16 holds it. Raises :class:`InvalidParameterError` for a
    scheme without codes of its own, and where a scale would be too large for fp16.
    """
    if not can_round_to(scheme) or scheme.code_bits is None:
        raise InvalidParameterError(f"weights cannot be rounded to scheme {scheme.name!r}")
    codebook = None if scheme.codebook is None else np.array(scheme.codebook, np.int8)
    try:
        codes, scales, minimums = _native.round_weights(
            np.ascontiguousarray(values, np.float32),
            scheme.group or values.shape[1],
            method,
            bits=scheme.code_bits,
            minimum=scheme.minimum,
            codebook=codebook,
        )
    except ValueError as error:
        raise InvalidParameterError(str(error)) from None
    return QuantizedTensor(
        scheme.name,
        codes,
        scales.view(np.float16),
        None if minimums is None else minimums.view(np.float16),
    )
