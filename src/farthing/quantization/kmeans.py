"""The best codebook for a matrix, found exactly."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from farthing.quantization.schemes import CODEBOOK_REACH, NF4_CODEBOOK

_LEVELS = np.arange(-CODEBOOK_REACH, CODEBOOK_REACH + 1)
_BINS = 4 * CODEBOOK_REACH + 1  # of a half, and one for the largest level itself
_ENTRIES = 16


def best_codebook(sums: npt.NDArray[np.float64]) -> npt.NDArray[np.int8]:
    """The 16 whole levels in -127..127, ascending, that leave the least squared error.

    ``sums`` (509, 3) are, over weights in units of their scale that fall into each bin of a half
    from -127 on, the sums of w, w * t and w * t^2 (w: what an error counts for). As levels are
    whole, the middle between two is an edge of bins, and the error of any codebook follows from
    the sums. The least is found by dynamic programming over levels, as for k-means in one dimension
    (Wang and Song, "Ckmeans.1d.dp", 2011): no start to choose, no local optimum, never worse than
    any other codebook of whole levels. NF4's where all sums are zero.
    """
    if not sums.any():
        return np.array(NF4_CODEBOOK, np.int8)
    below = np.concatenate([np.zeros((1, 3)), np.cumsum(sums, axis=0)])  # of bins before an edge
    place = np.arange(len(_LEVELS))  # of a level; its edge is 2 * place

    def error(start: npt.NDArray[np.int_], stop: npt.NDArray[np.int_]) -> npt.NDArray[np.float64]:
        """Of bins start..stop on the level of each row."""
        count, first, second = np.moveaxis(below[stop] - below[start], -1, 0)
        level = _LEVELS.reshape(-1, *[1] * (start.ndim - 1))
        result: npt.NDArray[np.float64] = second - 2 * level * first + level * level * count
        return result

    middles = place[:, None] + place
    edges = np.broadcast_to(2 * place[:, None], middles.shape)
    above = error(edges, np.maximum(edges, middles))  # of a level, up to the middle to the next
    under = error(np.minimum(edges, middles), edges).T  # of the next, from the middle on
    between = np.where(place[:, None] < place, above + under, np.inf)
    total = error(np.zeros_like(place), 2 * place)
    chosen = []
    for _ in range(_ENTRIES - 1):
        candidates = total[:, None] + between
        chosen.append(candidates.argmin(axis=0))
        total = candidates.min(axis=0)
    last = int((total + error(2 * place, np.full_like(place, _BINS))).argmin())
    path = [last]
    for before in reversed(chosen):
        path.append(int(before[path[-1]]))
    return _LEVELS[path[::-1]].astype(np.int8)
