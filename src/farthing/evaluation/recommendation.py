"""The smallest model that loses nothing that matters, and the smallest within a stated loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from farthing.evaluation.comparison import Pair
from farthing.evaluation.evaluate import Evaluation

LEAST_POSITIONS = 8192
"""With fewer, two models that are alike would often not be shown to be."""


@dataclass(frozen=True, slots=True)
class Recommendation:
    """Names of candidates; None where no candidate will do."""

    margin: float
    max_loss: float
    equivalent: str | None
    within_loss: str | None
    all_equivalent: tuple[str, ...]  # the smallest first
    all_within_loss: tuple[str, ...]


def recommend(
    found: Evaluation, pairs: Sequence[Pair], margin: float, max_loss: float
) -> Recommendation:
    """What to take of the candidates of ``found``, by the bytes of their weights in memory.

    ``pairs`` has each of them against the reference, tested with ``margin``. ``max_loss`` is a
    share of the tokens of the text: a candidate is within it if the 95 % one-sided bound of what it
    loses is, whether or not it loses less than the margin.
    """
    assert found.reference is not None, "a loss is one against a reference"
    against = {pair.first: pair for pair in pairs if pair.second == found.reference.name}
    names = [each.name for each in sorted(found.candidates, key=lambda each: each.size.weights)]
    equivalent = tuple(name for name in names if against[name].equivalence.equivalent)
    within = tuple(name for name in names if against[name].equivalence.low90 > -max_loss)
    return Recommendation(
        margin,
        max_loss,
        equivalent[0] if equivalent else None,
        within[0] if within else None,
        equivalent,
        within,
    )
