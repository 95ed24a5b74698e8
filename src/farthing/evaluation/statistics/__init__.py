"""Figures with their uncertainty, and what a comparison could have shown. NumPy alone."""

from __future__ import annotations

from farthing.evaluation.statistics.bootstrap import Interval, block_length, bootstrap_mean
from farthing.evaluation.statistics.equivalence import Equivalence, equivalence, paired_difference
from farthing.evaluation.statistics.mcnemar import mcnemar
from farthing.evaluation.statistics.means import Estimate, mean
from farthing.evaluation.statistics.power import (
    smallest_difference_seen,
    smallest_mean_seen,
    smallest_rate_seen,
)
from farthing.evaluation.statistics.proportions import (
    Proportion,
    chance_of_at_most,
    upper_bound,
    wilson,
)

__all__ = [
    "Equivalence",
    "Estimate",
    "Interval",
    "Proportion",
    "block_length",
    "bootstrap_mean",
    "chance_of_at_most",
    "equivalence",
    "mcnemar",
    "mean",
    "paired_difference",
    "smallest_difference_seen",
    "smallest_mean_seen",
    "smallest_rate_seen",
    "upper_bound",
    "wilson",
]
