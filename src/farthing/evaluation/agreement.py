"""At how many positions of a reference's paths models say what it says.

Positions of a path have a text in common, so that they tell less than as many of other paths would.
How many times fewer independent ones tell as much is their design effect: the variance of a mean
when whole paths are drawn, by that of independent positions (Kish, "Survey Sampling", 1965,
chapter 5). One below 1 is taken for chance and changes nothing; nor does one that cannot be
estimated, of a single path or where all positions are alike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from farthing.evaluation.discordance import Discordance
from farthing.evaluation.statistics import Proportion, wilson


@dataclass(frozen=True, slots=True)
class Agreement:
    """A share whose interval allows for positions of one path being alike."""

    share: Proportion
    design_effect: float  # 1: as good as independent


def path_agreement(same: NDArray[np.bool_], path_of: NDArray[np.int32]) -> Agreement:
    """Agreement at each position (positions,), of the paths ``path_of`` (positions,).

    The interval is Wilson's for the positions divided by their design effect.
    """
    effect = _design_effect(same.astype(np.float64), path_of)
    return Agreement(wilson(int(same.sum()), len(same), effect), effect)


def compare_agreement(
    first: NDArray[np.bool_], second: NDArray[np.bool_], path_of: NDArray[np.int32]
) -> Discordance:
    """Whose agreement, at each position (positions,) of the paths ``path_of``, is larger."""
    effect = _design_effect(first.astype(np.float64) - second, path_of)
    return Discordance.between(first, second, effect)


def _design_effect(values: NDArray[np.float64], path_of: NDArray[np.int32]) -> float:
    total, mean, variance = len(values), float(values.mean()), float(values.var())
    lengths = np.bincount(path_of)
    lengths, sums = lengths[lengths > 0], np.bincount(path_of, values)[lengths > 0]
    paths = len(lengths)
    if paths < 2 or variance == 0:
        return 1.0
    # Linearized variance of a ratio of sums over clusters (Cochran 1977, section 6.3).
    residuals = sums - mean * lengths
    between = paths / (paths - 1) * math.fsum(residuals**2) / total**2
    return max(1.0, between / (variance / total))
