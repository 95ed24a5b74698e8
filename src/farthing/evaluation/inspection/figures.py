"""Pictures of an inspection, for a report."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from farthing.evaluation.drawing import (
    BLUE,
    COLOURS,
    GREEN,
    ORANGE,
    FigureFormat,
    PictureFolder,
    plain,
)
from farthing.evaluation.inspection.anatomy import BINS, SIGMAS, Anatomy, Steps
from farthing.evaluation.inspection.inspect import AnatomyFound, Inspection, LevelsFound
from farthing.evaluation.inspection.levels import LEVELS, Levels
from farthing.evaluation.inspection.matrices import short_name
from farthing.evaluation.inspection.outliers import TOP, PointOutliers, largest_point
from farthing.evaluation.inspection.weight_errors import SchemeErrors

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_TICKS = 14
_MOST_LEVELS = 32
"""On each side of zero; lines of more would be a surface."""
_LAYER = re.compile(r"layers\.(\d+)\.(.+)")


def draw(inspection: Inspection, folder: Path, kind: FigureFormat) -> list[Path]:
    """Draws all that was found into files in ``folder``, which is made; returns their paths.

    A file is there whole or, if it was there before, as it was. Raises ``OSError`` naming it.
    """
    pictures = PictureFolder(folder, kind)
    name = plain(inspection.checkpoint.path.name)
    if inspection.errors is not None:
        errors = inspection.errors
        panels = _panels(errors)
        height = 2.6 * -(-(len(panels) + 1) // 4) + 0.6
        pictures.draw("errors", (13, height), lambda f: _draw_errors(f, errors, panels, name))
    if inspection.anatomy is not None:
        anatomy = inspection.anatomy
        pictures.draw("anatomy", (9, 4.8), lambda f: _draw_anatomy(f, anatomy, name))
    if inspection.outliers is not None:
        points = inspection.outliers.points
        largest = largest_point(points)
        pictures.draw("outliers", (9, 5), lambda f: _draw_outliers(f, points, name))
        pictures.draw("octaves", (9, 4.4), lambda f: _draw_octaves(f, largest, name))
    if inspection.levels is not None:
        levels = inspection.levels
        pictures.draw("levels", (9, 5.6), lambda f: _draw_levels(f, levels, name))
    return pictures.drawn


Panels = dict[str, dict[int, list[str]]]
"""Names of matrices by what they project, then by layer."""


def _panels(errors: Sequence[SchemeErrors]) -> Panels:
    panels: Panels = defaultdict(lambda: defaultdict(list))
    for name in errors[0].errors:
        match = _LAYER.match(short_name(name))
        assert match is not None, name
        kind = re.sub(r"experts\.\d+", "experts", match[2])
        panels[kind][int(match[1])].append(name)
    return panels


def _draw_errors(figure: Figure, errors: Sequence[SchemeErrors], panels: Panels, name: str) -> None:
    rows = -(-(len(panels) + 1) // 4)
    axes = figure.subplots(rows, 4, sharex=True, sharey=True, squeeze=False).reshape(-1)
    for place, (axis, (kind, layers)) in enumerate(zip(axes, panels.items(), strict=False)):
        experts = any(len(names) > 1 for names in layers.values())
        axis.set_title(kind + (" (mean)" if experts else ""))
        for scheme, style in zip(errors, _styles(len(errors)), strict=True):
            means = [np.mean([scheme.errors[n] for n in names]) for names in layers.values()]
            axis.plot(list(layers), means, label=scheme.scheme, **style)
        axis.set_yscale("log")
        if place % 4 == 0:
            axis.set_ylabel("relative error")
        if place + 4 > len(panels) - 1:
            axis.set_xlabel("layer")
            axis.tick_params(labelbottom=True)
    _whole_layers(axes[0])
    for axis in axes[len(panels) :]:
        axis.axis("off")
    ordered = sorted(
        zip(*axes[0].get_legend_handles_labels(), errors, strict=True), key=lambda e: -e[2].mean
    )
    axes[len(panels)].legend(
        [handle for handle, _, _ in ordered],
        [f"{label}, mean {each.mean:.4f}" for _, label, each in ordered],
        loc="center left",
        title="Scheme, the largest error first",
        alignment="left",
    )
    figure.suptitle(f"{name}: ‖W − W'‖ / ‖W‖ of every matrix", x=0.01, ha="left")


def _styles(count: int) -> list[dict[str, Any]]:
    lines = ("-", "--", ":", "-.")
    return [
        {"color": COLOURS[i % 8], "linestyle": lines[i // 8 % 4], "linewidth": 1.6}
        for i in range(count)
    ]


def _draw_anatomy(figure: Figure, found: AnatomyFound, name: str) -> None:
    anatomy = found.anatomy
    axis = figure.subplots()
    edges = np.linspace(-anatomy.max_abs, anatomy.max_abs, BINS + 1)
    axis.stairs(anatomy.counts, edges, fill=True, color=BLUE, baseline=0.5)
    axis.set_yscale("log")
    axis.set_ylim(0.5, 3 * max(1, int(anatomy.counts.max())))
    axis.set_xlabel("weight")
    axis.set_ylabel("weights in a bin")
    title = f"{name}: {short_name(anatomy.matrix)}\n"
    title += f"largest weight {anatomy.max_to_std:.1f} standard deviations from zero"
    even = [steps for steps in anatomy.steps if steps.even]
    if even:
        widest = max(even, key=lambda steps: steps.median_step)
        _mark_steps(axis, anatomy, widest)
        title += f"; {widest.scheme} makes {widest.zeros:,} of {anatomy.weights:,} weights 0"
    for side in (-1, 1):
        axis.axvline(
            side * SIGMAS * anatomy.std,
            color="black",
            linewidth=1.2,
            linestyle=":",
            label=f"± {SIGMAS} standard deviations" if side == 1 else None,
        )
    axis.set_title(title)
    figure.legend(loc="outside lower center", ncols=3)


def _mark_steps(axis: Axes, anatomy: Anatomy, steps: Steps) -> None:
    step = steps.median_step
    axis.axvspan(
        -step / 2, step / 2, color=ORANGE, alpha=0.2, lw=0, label=f"{steps.scheme}: becomes 0"
    )
    count = round(anatomy.max_abs / step) if step else 0
    for i in range(-count, count + 1) if count <= _MOST_LEVELS else ():
        label = f"{steps.scheme}: levels, {step:.3g} apart" if i == 0 else None
        axis.axvline(i * step, color=ORANGE, linewidth=0.9, label=label)


def _draw_outliers(figure: Figure, points: Sequence[PointOutliers], name: str) -> None:
    axis = figure.subplots()
    layers = [-1 if point.layer is None else point.layer for point in points]

    def line(values: list[float], label: str | None, colour: str, **style: Any) -> None:
        axis.plot(layers, values, label=label, color=colour, **style)

    tops = [point.all_tokens.top() for point in points]
    line([p.all_tokens.maximum for p in points], "largest dimension", ORANGE, linewidth=2)
    for rank in range(1, min(TOP, len(tops[0]))):
        label = "the next three" if rank == 1 else None
        line([abs(top[rank].value) for top in tops], label, ORANGE, linewidth=1, alpha=0.45)
    without = [p.after_first.maximum for p in points]
    line(without, "largest, without the first token", GREEN, linewidth=1.6, linestyle="--")
    line([p.all_tokens.median for p in points], "median dimension", BLUE, linewidth=2)
    axis.set_yscale("log")
    axis.set_xlabel("layer (−1: the embeddings)")
    axis.set_ylabel("largest magnitude over the prompt")
    axis.set_title(f"{name}: residual stream behind each layer")
    _whole_layers(axis)
    figure.legend(loc="outside lower center", ncols=4)


def _draw_octaves(figure: Figure, point: PointOutliers, name: str) -> None:
    octaves = point.all_tokens.octaves()
    axis = figure.subplots()
    bars = axis.bar(list(octaves), list(octaves.values()), width=0.9, color=BLUE)
    axis.bar_label(bars, labels=[str(count) if count else "" for count in octaves.values()])
    axis.grid(axis="x", visible=False)
    crowded = len(octaves) > _MOST_TICKS
    axis.set_xticks(list(octaves), [_power(k) for k in octaves], rotation=45 if crowded else 0)
    axis.set_xlabel("largest magnitude of a dimension, from this power of two to the next")
    axis.set_ylabel("dimensions")
    where = "embeddings" if point.layer is None else f"residual stream behind layer {point.layer}"
    axis.set_title(f"{name}: {where}, {len(point.all_tokens.values)} dimensions by octave")


def _power(exponent: int) -> str:
    return f"{2**exponent:,}" if exponent >= 0 else f"1/{2**-exponent:,}"


def _draw_levels(figure: Figure, found: LevelsFound, name: str) -> None:
    upper, lower = figure.subplots(2, 1, sharex=True, sharey=True)
    both = found.all_tokens
    apart = ", ".join(map(str, both.dimensions))
    _draw_counts(upper, both.whole, "all dimensions", ORANGE)
    _draw_counts(lower, both.rest, f"without dimensions {apart}", BLUE)
    lower.set_xlabel("level")
    where = "embeddings" if found.layer is None else f"residual stream behind layer {found.layer}"
    figure.suptitle(f"{name}: {where} in INT8, one scale", x=0.01, ha="left")


def _draw_counts(axis: Axes, levels: Levels, what: str, colour: str) -> None:
    edges = np.arange(LEVELS + 1) - LEVELS // 2 - 0.5
    axis.stairs(levels.counts, edges, fill=True, color=colour, baseline=0.5)
    axis.set_yscale("log")
    axis.set_ylim(bottom=0.5)
    axis.set_xticks(range(-128, 129, 32))
    axis.set_ylabel("values")
    axis.set_title(f"{what}: scale {levels.scale:.4f}, {levels.used} of {LEVELS} levels used")


def _whole_layers(axis: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
