"""The rules of csrc/kernels/sampling/sampling.h in NumPy and whole numbers, a row at a time."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from .float32_model import Floats, native

Ids = NDArray[np.int64]


def final_values(logits: Floats, allowed: NDArray[np.bool_], edits: Mapping[int, float]) -> Floats:
    """The values of all tokens, forbidden ones -infinity."""
    values = logits.copy()
    for token, value in edits.items():
        values[token] = value
    values[~allowed] = -np.inf
    return values


def heights(values: Floats, temperature: float) -> Floats:
    with np.errstate(over="ignore", divide="ignore"):
        result: Floats = (values - values.max()) / np.float32(temperature)
    return result


def ratios(values: Floats, temperature: float) -> Floats:
    result: Floats = native.exp("scalar", heights(values, temperature))
    return result


def fixed(x: NDArray[np.floating]) -> list[int]:
    """rint(2^40 x)."""
    return [int(n) for n in np.rint(x.astype(np.float64) * 2.0**40)]


def needed(share: float, total: int) -> int:
    return min(max(math.ceil(share * float(total)), 1), total)


def shortest(order: Ids, weights: list[int], share: float) -> Ids:
    """The shortest beginning of ``order`` with its share of the weight."""
    goal = needed(share, sum(weights[i] for i in order))
    reached = 0
    for length, token in enumerate(order, 1):
        reached += weights[token]
        if reached >= goal:
            return order[:length]
    raise AssertionError("the whole reaches any share")


def kept(
    values: Floats,
    temperature: float,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    typical_p: float = 1.0,
) -> Ids:
    """Ids that the filters leave, ascending; the highest value is finite."""
    ids = np.arange(values.size)
    order: Ids = np.lexsort((ids, -values))
    order = order[values[order] > -np.inf]
    ratio = ratios(values, temperature)
    weights = fixed(ratio)
    if 0 < top_k < values.size:
        order = order[:top_k]
    if top_p < 1:
        order = shortest(order, weights, top_p)
    if min_p > 0:
        order = order[ratio[order] >= np.float32(min_p)]
    if typical_p < 1:
        height = heights(values, temperature)
        depth = np.minimum(-height, np.float32(128))
        depths = fixed(ratio[order] * depth[order])
        mean = np.float32(float(sum(depths)) / float(sum(weights[i] for i in order)))
        deviation = np.abs(height + mean)
        order = order[np.lexsort((order, -values[order], deviation[order]))]
        order = shortest(order, weights, typical_p)
    return np.sort(order)


def chosen(
    values: Floats, candidates: Ids, temperature: float, seed: int, choice: int, position: int
) -> int:
    """The candidate of highest height + noise, the lowest id among equals."""
    noise = native.gumbel("scalar", seed, choice, position, 0, values.size)
    scores = (heights(values, temperature) + noise)[candidates]
    return int(candidates[int(np.argmax(scores))])
