"""How often candidates say what the reference says, and what the difference is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from farthing.evaluation.drawing import GREEN, GREY, error_bar
from farthing.evaluation.figures.candidates import (
    Compared,
    compared,
    shown_name,
    standing_handles,
)
from farthing.evaluation.report import Report
from farthing.evaluation.verdicts import points_in_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BEYOND = "beyond the axis"
_FAR = 8
"""Times the margin, or what the nearest reaches: a difference beyond would take all of the axis."""


@dataclass(frozen=True, slots=True)
class _Row:
    """Percent, or points."""

    value: float
    low: float
    high: float
    figure: str


def agreement_size(report: Report) -> tuple[float, float]:
    """Of the picture, inches."""
    width = 11.0 if report.positions else 7.5
    return width, max(3.4, 2.3 + 0.4 * len(compared(report)))


def draw_agreement(figure: Figure, report: Report) -> None:
    """Intervals of agreement (percent, 95 %) and of the difference in points (90 %), side by side.

    Agreement is left out where no positions were asked. What is too far for an axis that shows the
    others stands as an arrow at its end. Every figure is written above its mark.
    """
    from matplotlib.lines import Line2D

    candidates = compared(report)
    axes = figure.subplots(1, 2 if report.positions else 1, sharey=True, squeeze=False)[0]
    names = [each.name for each in candidates]
    axes[0].set_yticks(range(len(names)), names)
    axes[0].set_ylim(len(names) - 0.4, -0.6)
    axes[-1].tick_params(axis="y", left=len(axes) == 1)
    beyond = report.positions > 0 and _draw_shares(axes[0], candidates, report)
    beyond |= _draw_differences(axes[-1], candidates, report)
    handles = standing_handles(candidates, report.margin)
    if beyond:
        handles.append(Line2D([], [], linestyle="", marker="<", color=GREY, label=_BEYOND))
    figure.suptitle(f"{shown_name(report.model)} against the reference", x=0.01, ha="left")
    columns = 3 if report.positions else 2
    figure.legend(handles=handles, loc="outside lower center", ncols=columns)


def _draw_shares(axis: Axes, candidates: Sequence[Compared], report: Report) -> bool:
    shares = [each.model.paths.share for each in candidates if each.model.paths is not None]
    rows = [
        _Row(s.value * 100, s.low * 100, s.high * 100, f"{s.value * 100:.1f} %") for s in shares
    ]
    best = max(row.value for row in rows)
    kept = [row.low for row in rows if row.value >= best / 2]
    start, stop = min(kept), max(row.high for row in rows)
    room = 0.06 * (stop - start) + 0.1
    axis.set_xlabel("positions with the reference's token, %")
    axis.set_title(f"Agreement at greedy positions\n{report.positions:,} of them, 95 % intervals")
    return _draw_rows(axis, rows, candidates, (start - room, stop + room))


def _draw_differences(axis: Axes, candidates: Sequence[Compared], report: Report) -> bool:
    tests = [each.equivalence for each in candidates]
    rows = [
        _Row(e.difference * 100, e.low90 * 100, e.high90 * 100, f"{e.difference * 100:+.2f}")
        for e in tests
    ]
    margin = report.margin * 100
    reach = [max(abs(row.low), abs(row.high)) for row in rows]
    limit = _FAR * max(margin, min(reach))
    end = 1.08 * max([margin, *(r for r in reach if r <= limit)])
    axis.axvspan(-margin, margin, color=GREEN, alpha=0.12, lw=0)
    axis.axvline(0, color="black", linewidth=0.9)
    axis.set_xlabel("difference from the reference, points")
    axis.set_title(
        "Next tokens of the text found likeliest\n"
        f"{report.tokens.scored:,} tokens, 90 % intervals; shaded: within "
        f"{points_in_words(report.margin)}"
    )
    return _draw_rows(axis, rows, candidates, (-end, end))


def _draw_rows(
    axis: Axes, rows: Sequence[_Row], candidates: Sequence[Compared], ends: tuple[float, float]
) -> bool:
    """Whether one is beyond the ends of the axis."""
    beyond = False
    axis.set_xlim(ends)
    for place, (row, each) in enumerate(zip(rows, candidates, strict=True)):
        if ends[0] <= row.value <= ends[1]:
            errors = error_bar(row.value, row.low, row.high)
            axis.errorbar(row.value, place, xerr=errors, capsize=3, linewidth=1.6, **each.style)
            x, aside, across = row.value, 0, "center"
        else:
            under = row.value < ends[0]
            x, aside, across = (ends[0], 4, "left") if under else (ends[1], -4, "right")
            beyond = True
            axis.plot(x, place, **{**each.style, "marker": "<" if under else ">"}, clip_on=False)
        axis.annotate(
            row.figure.replace("-", "−"),
            (x, place),
            (aside, 6),
            textcoords="offset points",
            horizontalalignment=across,
            fontsize=8.5,
        )
    return beyond
