"""How fast each model decodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from farthing.evaluation.drawing import BLUE, GREY
from farthing.evaluation.figures.candidates import shown_name
from farthing.evaluation.report import Report
from farthing.evaluation.speed import StepTime
from farthing.evaluation.summary import SpeedFigures

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def speed_size(report: Report) -> tuple[float, float]:
    """Of the picture, inches."""
    return 11.0, max(3.0, 1.9 + 0.36 * len(_measured(report)))


def draw_speed(figure: Figure, report: Report) -> None:
    """Tokens a second of one sequence alone, and of all at the knee: a bar a model each."""
    speeds = _measured(report)
    axes = figure.subplots(1, 2, sharey=True)
    axes[0].set_yticks(range(len(speeds)), [shown_name(name) for name in speeds])
    axes[0].set_ylim(len(speeds) - 0.4, -0.6)
    axes[1].tick_params(axis="y", left=False)
    has_reference = report.reference_is is not None
    colours = [GREY if has_reference and name == report.models[0].name else BLUE for name in speeds]
    alone = [speed.alone for speed in speeds.values()]
    knee = [speed.knee for speed in speeds.values()]
    _draw_bars(axes[0], alone, [f"{s.tokens_per_second:.1f}" for s in alone], colours)
    _draw_bars(axes[1], knee, [f"{s.tokens_per_second:.0f} at {s.batch}" for s in knee], colours)
    axes[0].set_title("One sequence alone")
    axes[1].set_title("All sequences at the knee of the batch")
    figure.suptitle(
        f"{shown_name(report.model)}: decoding; bars are medians, lines the slowest and the "
        "fastest step",
        x=0.01,
        ha="left",
    )


def _measured(report: Report) -> dict[str, SpeedFigures]:
    return {model.name: model.speed for model in report.models if model.speed is not None}


def _draw_bars(
    axis: Axes, steps: Sequence[StepTime], texts: Sequence[str], colours: Sequence[str]
) -> None:
    medians = [step.tokens_per_second for step in steps]
    slowest = [step.batch / step.most for step in steps]
    fastest = [step.batch / step.least for step in steps]
    axis.barh(range(len(steps)), medians, height=0.62, color=colours)
    axis.hlines(range(len(steps)), slowest, fastest, color="black", linewidth=1.2)
    for place, (end, text) in enumerate(zip(fastest, texts, strict=True)):
        axis.annotate(
            text, (end, place), (5, 0), textcoords="offset points", verticalalignment="center"
        )
    axis.set_xlim(0, 1.22 * max(fastest))
    axis.grid(axis="y", visible=False)
    axis.set_xlabel("tokens/s")
