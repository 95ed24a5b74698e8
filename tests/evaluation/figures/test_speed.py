"""Speed: a bar a model, as it was timed."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from farthing.evaluation.figures import draw
from farthing.evaluation.report import Report
from support.drawn_figures import overlaps, text_boxes
from support.reports import make_report


def test_bars_are_the_medians_and_lines_the_extremes(
    drawn: dict[str, Figure], report: Report
) -> None:
    alone, knee = drawn["speed"].axes
    names = [label.get_text() for label in alone.get_yticklabels()]
    assert names == [model.name for model in report.models]
    for axis, which in ((alone, "alone"), (knee, "knee")):
        steps = [getattr(model.speed, which) for model in report.models]
        widths = [bar.get_width() for bar in axis.patches]
        assert widths == [step.batch / step.seconds for step in steps]
        (lines,) = axis.collections
        for step, segment in zip(steps, lines.get_segments(), strict=True):
            ends = [float(x) for x, _ in segment]
            assert ends == pytest.approx([step.batch / step.most, step.batch / step.least])
            assert ends[1] < axis.get_xlim()[1]
        assert axis.get_xlim()[0] == 0


def test_every_bar_says_its_figure_and_the_knee_its_batch(drawn: dict[str, Figure]) -> None:
    alone, knee = (text_boxes(axis) for axis in drawn["speed"].axes)
    assert list(alone) == ["5.0", *(f"{10 + i}.0" for i in range(7))]
    assert list(knee) == ["15 at 4", *(f"{30 + 3 * i} at 4" for i in range(7))]
    assert overlaps(alone) == overlaps(knee) == []


def test_the_reference_is_of_another_colour(
    drawn: dict[str, Figure], saved: dict[str, Figure], tmp_path: Path
) -> None:
    reference, *others = (bar.get_facecolor() for bar in drawn["speed"].axes[0].patches)
    assert set(others) == {others[0]} != {reference}
    draw(make_report(reference=False), tmp_path, "png")
    (bar,) = saved["speed"].axes[0].patches
    assert bar.get_facecolor() == others[0]
