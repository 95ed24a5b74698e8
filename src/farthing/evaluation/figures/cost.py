"""What each scheme costs: its size against how far its predictions are from the reference's."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from farthing.evaluation.drawing import error_bar
from farthing.evaluation.figures.candidates import (
    Compared,
    compared,
    shown_name,
    standing_handles,
)
from farthing.evaluation.figures.labels import Labelled, write_labels
from farthing.evaluation.recommendation import Recommendation
from farthing.evaluation.report import Report
from farthing.evaluation.verdicts import points_in_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MIB = 2**20
_ROOM = 1.8  # times the largest and smallest: for labels


def draw_cost(figure: Figure, report: Report) -> None:
    """Packed weights (MiB) across, mean divergence (nats, logarithmic) with its interval along.

    A logarithmic axis has no place for 0 or for what is no finite number: these stand at its lower
    and upper end, with words beside them.
    """
    axis = figure.subplots()
    candidates = compared(report)
    low, high = _ends(candidates)
    axis.set_yscale("log", nonpositive="clip")
    axis.set_ylim(low, high)
    labels = []
    for each in candidates:
        x, kl = each.model.size.weights / MIB, each.kl
        lines = [each.name, *_recommended(each, report.recommendation)]
        if math.isfinite(kl.value) and kl.value > 0:
            below = max(low, kl.low)
            errors = error_bar(kl.value, below, kl.high)
            axis.errorbar(x, kl.value, errors, capsize=3, linewidth=1.4, **each.style)
            labels.append(Labelled(x, kl.value, below, kl.high, "\n".join(lines)))
        else:
            end, marker, words = (high, "^", "no finite number")
            if kl.value == 0:
                end, marker, words = (low, "v", "0")
            axis.plot(x, end, **{**each.style, "marker": marker}, clip_on=False)
            labels.append(Labelled(x, end, end, end, "\n".join([*lines, f"({words})"])))
    axis.margins(x=0.14)
    _plain_ticks(axis, low, high)
    reference = report.models[0].size.weights / MIB
    axis.set_xlabel(f"packed weights, MiB (the reference's: {reference:,.0f})")
    axis.set_ylabel("KL divergence from the reference, nats a token")
    axis.set_title(_title(report))
    figure.legend(
        handles=standing_handles(candidates, report.margin),
        loc="outside lower center",
        ncols=2,
        title="Next token of the text against the reference:",
    )
    write_labels(figure, axis, labels)


def _ends(candidates: list[Compared]) -> tuple[float, float]:
    """Of the axis."""
    intervals = [each.kl for each in candidates if math.isfinite(each.kl.value)]
    values = [kl.value for kl in intervals if kl.value > 0]
    if not values:
        return 1e-3, 1.0
    lows = [kl.low for kl in intervals if kl.low > 0]
    return min(lows + values) / _ROOM, max([kl.high for kl in intervals] + values) * _ROOM


def _plain_ticks(axis: Axes, low: float, high: float) -> None:
    """Numbers in place of powers of ten, those between too where there is room for them."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    wide = high / low > 1e4
    axis.yaxis.set_major_locator(LogLocator(subs=(1.0,) if wide else (1.0, 2.0, 5.0)))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.yaxis.set_minor_formatter(NullFormatter())


def _recommended(each: Compared, found: Recommendation | None) -> list[str]:
    if found is None:
        return []
    lines = []
    if each.model.name == found.equivalent:
        lines.append("smallest equivalent")
    if each.model.name == found.within_loss:
        lines.append(f"smallest within {points_in_words(found.max_loss)}")
    return lines


def _title(report: Report) -> str:
    return (
        f"{shown_name(report.model)}: what fewer bytes cost\n"
        f"{report.tokens.scored:,} tokens of {shown_name(report.text)}; 95 % intervals, where they "
        "are longer than the mark"
    )
