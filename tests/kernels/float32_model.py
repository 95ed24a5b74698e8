"""Float32 arithmetic in NumPy as the kernels' contracts write it, and inputs that can break it.

Nothing here shares code with the kernels but the functions exp, log and tanh of ``_native``, which
``test_vector_math.py`` holds to float64.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

native: Any = importlib.import_module("farthing._native")

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]


ISAS = native.supported_isas()
BEST = ISAS[-1]


def fma32(a: Any, b: Any, c: Any) -> Floats:
    """``a * b + c`` of float32 arrays with one rounding.

    The product is exact in float64; the sum is rounded to odd there, after which rounding to
    float32 is as good as rounding the exact sum (Boldo and Melquiond, 2008).
    """
    product = np.float64(a) * np.float64(b)
    c = np.float64(c)
    total = np.atleast_1d(product + c)
    with np.errstate(invalid="ignore"):
        back = total - product
        error = (product - (total - back)) + (c - back)
    even = (total.view(np.int64) & 1) == 0
    nudge = np.isfinite(total) & (error != 0) & even
    total = np.where(nudge, np.nextafter(total, np.where(error > 0, np.inf, -np.inf)), total)
    with np.errstate(over="ignore", under="ignore"):
        rounded = total.astype(np.float32)
    return rounded.reshape(np.broadcast_shapes(np.shape(a), np.shape(b), np.shape(c)))


def tree_sum(lanes: Floats) -> Floats:
    """Sum of the last axis (16): lanes 8 apart, then 4, 2 and 1."""
    for apart in (8, 4, 2, 1):
        lanes = lanes[..., :apart] + lanes[..., apart : 2 * apart]
    return lanes[..., 0]


def flat(function: Any, x: Floats) -> Floats:
    """A function of ``_native`` over an array of any shape."""
    result: Floats = function("scalar", np.ascontiguousarray(x).reshape(-1)).reshape(x.shape)
    return result


def same_bits(a: NDArray[Any], b: NDArray[Any]) -> bool:
    """Equal bit for bit; NaN equals NaN, whatever its payload."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    bits = np.dtype(f"u{a.dtype.itemsize}")
    both_nan = np.isnan(a) & np.isnan(b)
    return bool(np.all((a.view(bits) == b.view(bits)) | both_nan))


def hostile(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Normal values with outliers, denormals and zeros of both signs strewn in."""
    x = rng.standard_normal(shape)
    kind = rng.random(shape)
    x = np.where(kind < 0.05, x * rng.lognormal(3, 2, shape), x)
    x = np.where((kind > 0.9) & (kind < 0.93), x * 1e-40, x)
    x = np.where((kind > 0.93) & (kind < 0.95), np.copysign(0.0, x), x)
    return x.astype(np.float32)


def ulps(result: NDArray[Any], truth: Doubles) -> Doubles:
    """Distance from the truth in units of the last place of a result of the truth's size."""
    bits, lowest = (23, -126) if result.dtype == np.float32 else (52, -1022)
    exponent = np.maximum(np.frexp(truth)[1] - 1, lowest)
    distance: Doubles = np.abs(result.astype(np.float64) - truth) / np.ldexp(1.0, exponent - bits)
    return distance
