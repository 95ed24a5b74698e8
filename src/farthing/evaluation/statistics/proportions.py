"""Shares, and between which bounds they lie."""

from __future__ import annotations

import math
from dataclasses import dataclass

from farthing.evaluation.statistics.quantiles import Z_95


@dataclass(frozen=True, slots=True)
class Proportion:
    """``count`` of ``total``, with its 95 % interval."""

    count: int
    total: int
    low: float
    high: float

    @property
    def value(self) -> float:
        """The share."""
        return self.count / self.total


def wilson(count: int, total: int, design_effect: float = 1.0) -> Proportion:
    """The 95 % score interval of a proportion (Wilson 1927).

    With a ``design_effect`` it is that of so many times fewer independent observations.
    """
    share, z2, n = count / total, Z_95 * Z_95, total / design_effect
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    spread = math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    half = Z_95 * spread / (1 + z2 / n)
    # At either end the bound is that end itself; rounding must not leave it.
    low = 0.0 if count == 0 else centre - half
    high = 1.0 if count == total else centre + half
    return Proportion(count, total, low, high)
