"""At how many positions of its paths a model says what the reference says."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from farthing.evaluation.statistics import Proportion, wilson


@dataclass(frozen=True, slots=True)
class Agreement:
    """A share whose interval allows for positions of one path being alike."""

    share: Proportion
    design_effect: float  # 1: as good as independent


def path_agreement(same: NDArray[np.bool_], path_of: NDArray[np.int32]) -> Agreement:
    """Agreement at each position (positions,), of the paths ``path_of`` (positions,).

    Positions of a path have a text in common, so that they tell less than as many of other paths
    would. The interval is Wilson's for the positions divided by the design effect: the variance of
    the share when whole paths are drawn, by that of independent positions (Kish, "Survey Sampling",
    1965, chapter 5). An effect below 1 is taken for chance and changes nothing; nor does one that
    cannot be estimated, of a single path or where all positions are alike.
    """
    effect = max(1.0, _design_effect(same, path_of))
    return Agreement(wilson(int(same.sum()), len(same), effect), effect)


def _design_effect(same: NDArray[np.bool_], path_of: NDArray[np.int32]) -> float:
    total, share = len(same), float(same.mean())
    lengths = np.bincount(path_of)
    lengths, counts = lengths[lengths > 0], np.bincount(path_of, same)[lengths > 0]
    paths = len(lengths)
    if paths < 2 or share in (0.0, 1.0):
        return 1.0
    # Linearized variance of a ratio of sums over clusters (Cochran 1977, section 6.3).
    residuals = counts - share * lengths
    between = paths / (paths - 1) * math.fsum(residuals**2) / total**2
    return between / (share * (1 - share) / total)
