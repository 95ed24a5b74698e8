"""What one of two models alone gets right, and whether that is a difference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from farthing.evaluation.statistics import mcnemar, smallest_difference_seen

LEVEL = 0.05
"""A difference is one where chance alone brings about as much in no more of such cases."""


@dataclass(frozen=True, slots=True)
class Discordance:
    """Of ``total`` questions or positions, what one of two models alone gets right."""

    only_first: int
    only_second: int
    total: int
    p: float  # McNemar's, exact and two-sided
    smallest_seen: float | None  # share by which they had to differ to be found in 80 % of samples
    design_effect: float  # of positions that are alike; 1: as good as independent

    @classmethod
    def of(cls, only_first: int, only_second: int, total: int, design_effect: float = 1.0) -> Self:
        """With a ``design_effect`` both tests are those of so many times fewer."""
        return cls(
            only_first,
            only_second,
            total,
            mcnemar(only_first, only_second, design_effect),
            smallest_difference_seen(
                int(total / design_effect), (only_first + only_second) / total
            ),
            design_effect,
        )

    @classmethod
    def between(
        cls, first: NDArray[np.bool_], second: NDArray[np.bool_], design_effect: float = 1.0
    ) -> Self:
        """Of what each gets right of the same questions, (questions,)."""
        only_first, only_second = int((first & ~second).sum()), int((second & ~first).sum())
        return cls.of(only_first, only_second, len(first), design_effect)

    @property
    def found(self) -> bool:
        """Whether it is a difference."""
        return self.p <= LEVEL
