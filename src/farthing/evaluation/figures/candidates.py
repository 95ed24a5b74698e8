"""What the pictures take from a report: its candidates, what they are called, how they stand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farthing.evaluation.drawing import BLUE, GREEN, ORANGE, plain
from farthing.evaluation.report import Report
from farthing.evaluation.statistics import Equivalence, Interval
from farthing.evaluation.summary import ModelFigures
from farthing.evaluation.verdicts import Standing, standing, standing_in_words

if TYPE_CHECKING:
    from matplotlib.artist import Artist

_LONGEST_NAME = 36

# Apart in shape as well as in colour. Open: an outline.
_STYLES: dict[Standing, dict[str, Any]] = {
    "equivalent": {"marker": "o", "color": GREEN, "markersize": 7},
    "open": {"marker": "o", "color": BLUE, "markersize": 7, "markerfacecolor": "white"},
    "worse": {"marker": "X", "color": ORANGE, "markersize": 8},
    "better": {"marker": "P", "color": BLUE, "markersize": 8},
}


@dataclass(frozen=True, slots=True)
class Compared:
    """A candidate beside the reference."""

    model: ModelFigures
    kl: Interval
    equivalence: Equivalence

    @property
    def name(self) -> str:
        """As figures show it."""
        return shown_name(self.model.name)

    @property
    def style(self) -> dict[str, Any]:
        """Of its marker, by what was shown of the next token."""
        return _STYLES[standing(self.equivalence)]


def compared(report: Report) -> list[Compared]:
    """All candidates, the largest first; none without a reference."""
    if report.reference_is is None:
        return []
    reference = report.models[0].name
    against = {pair.first: pair for pair in report.pairs if pair.second == reference}
    found = [
        Compared(model, model.text.kl.mean, against[model.name].equivalence)
        for model in report.models[1:]
        if model.text.kl is not None
    ]
    return sorted(found, key=lambda each: -each.model.size.weights)


def standing_handles(candidates: Iterable[Compared], margin: float) -> list[Artist]:
    """A legend's entries of the markers that are used."""
    from matplotlib.lines import Line2D

    there = {standing(each.equivalence) for each in candidates}
    return [
        Line2D([], [], linestyle="", label=standing_in_words(which, margin), **style)
        for which, style in _STYLES.items()
        if which in there
    ]


def shown_name(name: str) -> str:
    """The last part of a path or a hub id, cut in its middle where it is long."""
    name = Path(name).name or name
    if len(name) > _LONGEST_NAME:
        half = _LONGEST_NAME // 2
        name = f"{name[: half - 1]}…{name[-half:]}"
    return plain(name)
