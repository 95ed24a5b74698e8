"""Figures with their uncertainty."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Z_95 = 1.959963984540054
"""Quantile of the normal distribution that leaves 2.5 % above it."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number and its standard error; None where one observation says nothing of it."""

    value: float
    standard_error: float | None

    def times(self, factor: float) -> Estimate:
        """The estimate in another unit."""
        error = self.standard_error
        return Estimate(self.value * factor, None if error is None else error * abs(factor))

    def exponential(self) -> Estimate:
        """``exp`` of the estimate, to first order in its error."""
        value = math.exp(self.value)
        error = self.standard_error
        return Estimate(value, None if error is None else value * error)


def mean(values: NDArray[np.float64]) -> Estimate:
    """Mean of independent observations (n,)."""
    n = len(values)
    error = float(values.std(ddof=1)) / math.sqrt(n) if n > 1 else None
    return Estimate(float(values.mean()), error)


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


def wilson(count: int, total: int) -> Proportion:
    """The 95 % score interval of a proportion (Wilson 1927)."""
    share, z2 = count / total, Z_95 * Z_95
    centre = (share + z2 / (2 * total)) / (1 + z2 / total)
    spread = math.sqrt(share * (1 - share) / total + z2 / (4 * total * total))
    half = Z_95 * spread / (1 + z2 / total)
    # At either end the bound is that end itself; rounding must not leave it.
    low = 0.0 if count == 0 else centre - half
    high = 1.0 if count == total else centre + half
    return Proportion(count, total, low, high)
