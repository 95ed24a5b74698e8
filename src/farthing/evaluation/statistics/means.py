"""Means of independent observations."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


def exponential(value: float) -> float:
    """``exp``, infinite where no float is large enough: of a model that was destroyed."""
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


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
        value = exponential(self.value)
        error = self.standard_error
        return Estimate(value, None if error is None else value * error)


def mean(values: NDArray[np.float64]) -> Estimate:
    """Mean of independent observations (n,)."""
    n = len(values)
    error = float(values.std(ddof=1)) / math.sqrt(n) if n > 1 else None
    return Estimate(float(values.mean()), error)
