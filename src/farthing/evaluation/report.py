"""All that an evaluation has to say, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from farthing.evaluation.comparison import Pair, compare_all
from farthing.evaluation.evaluate import Evaluation, Memory
from farthing.evaluation.recommendation import Recommendation, recommend
from farthing.evaluation.settings import Settings
from farthing.evaluation.summary import ModelFigures, TokenCounts, summarize, token_counts
from farthing.quantization.rounding import RoundingMethod


@dataclass(frozen=True, slots=True)
class Report:
    """``reference_is`` describes the reference, the first of ``models`` if there is one.

    ``method`` is None where no weight was rounded to codes.
    """

    model: str
    reference_is: str | None
    text: str
    battery: str | None
    method: RoundingMethod | None
    settings: Settings
    margin: float
    tokens: TokenCounts
    positions: int  # of the reference's paths
    paths: int
    models: tuple[ModelFigures, ...]
    pairs: tuple[Pair, ...]
    recommendation: Recommendation | None
    memory: Memory

    @classmethod
    def of(
        cls,
        found: Evaluation,
        *,
        model: str,
        text: str,
        battery: str | None,
        method: RoundingMethod | None,
        settings: Settings,
        margin: float,
        max_loss: float | None,
    ) -> Self:
        """The report of ``found``. With a ``max_loss`` it recommends; both are shares."""
        pairs = compare_all(found, margin)
        measured = ([] if found.reference is None else [found.reference]) + [*found.candidates]
        paths = found.paths
        return cls(
            model,
            found.reference_is,
            text,
            battery,
            method,
            settings,
            margin,
            token_counts(found),
            0 if paths is None else paths.positions,
            0 if paths is None else len(paths.lengths),
            tuple(summarize(each, found) for each in measured),
            tuple(pairs),
            None if max_loss is None else recommend(found, pairs, margin, max_loss),
            found.memory,
        )
