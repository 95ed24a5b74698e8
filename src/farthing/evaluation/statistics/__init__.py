"""Figures with their uncertainty, and what a comparison could have shown. NumPy alone."""

from __future__ import annotations

from farthing.evaluation.statistics.bootstrap import (
    Interval,
    block_length,
    bootstrap_mean,
    exponential,
)
from farthing.evaluation.statistics.equivalence import Equivalence, equivalence
from farthing.evaluation.statistics.mcnemar import mcnemar
from farthing.evaluation.statistics.power import (
    smallest_difference_seen,
    smallest_mean_seen,
    smallest_rate_seen,
)
from farthing.evaluation.statistics.proportions import Proportion, wilson

__all__ = [
    "Equivalence",
    "Interval",
    "Proportion",
    "block_length",
    "bootstrap_mean",
    "equivalence",
    "exponential",
    "mcnemar",
    "smallest_difference_seen",
    "smallest_mean_seen",
    "smallest_rate_seen",
    "wilson",
]
