"""Size against divergence: drawn as it was found, and no scheme takes the axis for itself."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from farthing.evaluation.figures import draw
from farthing.evaluation.report import Report
from farthing.evaluation.statistics import Interval
from support.drawn_figures import intervals, legend, overlaps, text_boxes


def with_kl(report: Report, name: str, kl: Interval) -> Report:
    models = []
    for model in report.models:
        text = model.text
        if model.name == name:
            assert text.kl is not None
            text = replace(text, kl=replace(text.kl, mean=kl))
        models.append(replace(model, text=text))
    return replace(report, models=tuple(models))


def cost(saved: dict[str, Figure], report: Report, folder: Path) -> Axes:
    draw(report, folder, "png")
    (axis,) = saved["cost"].axes
    return axis


def test_points_and_intervals_are_those_of_the_report(
    drawn: dict[str, Figure], report: Report
) -> None:
    (axis,) = drawn["cost"].axes
    assert axis.get_yscale() == "log"
    found = {(x, y): (low, high) for x, y, low, high in intervals(axis)}
    assert len(found) == len(report.models) - 1
    for model in report.models[1:]:
        assert model.text.kl is not None
        kl, mib = model.text.kl.mean, model.size.weights / 2**20
        low, high = found[mib, kl.value]
        assert low == pytest.approx((mib, kl.low))
        assert high == pytest.approx((mib, kl.high))
        assert low[1] < kl.value < high[1]
    assert "the reference's: 1,202" in axis.get_xlabel()
    assert "2,000 tokens of a text; 95 % intervals" in axis.get_title(loc="left")


def test_every_scheme_is_named_beside_its_point_and_no_name_covers_another(
    drawn: dict[str, Figure], report: Report
) -> None:
    (axis,) = drawn["cost"].axes
    boxes = text_boxes(axis)
    names = sorted(model.name for model in report.models[1:])
    assert sorted(text.splitlines()[0] for text in boxes) == names
    assert overlaps(boxes) == []
    inside = axis.get_window_extent()
    points = axis.transData.transform([(x, y) for x, y, _, _ in intervals(axis)])
    for text, box in boxes.items():
        assert inside.contains(box.x0, box.y0), text
        assert inside.contains(box.x1, box.y1), text
        assert not any(box.contains(*point) for point in points), text
    for text in axis.texts:
        model = next(m for m in report.models if m.name == text.get_text().splitlines()[0])
        assert model.text.kl is not None
        assert text.xy == (model.size.weights / 2**20, model.text.kl.mean.value)


def test_what_is_recommended_and_what_was_shown_is_marked(
    drawn: dict[str, Figure], report: Report
) -> None:
    assert report.recommendation is not None
    texts = [text.get_text() for text in drawn["cost"].axes[0].texts]
    assert f"{report.recommendation.equivalent}\nsmallest equivalent" in texts
    assert f"{report.recommendation.within_loss}\nsmallest within 5 points" in texts
    assert sum("\n" in text for text in texts) == 2
    assert legend(drawn["cost"]) == [
        "equivalent within 1 point",
        "not shown to be within 1 point",
        "worse by more than 1 point",
    ]


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_what_is_no_finite_number_stands_at_the_end_of_the_axis(
    report: Report, saved: dict[str, Figure], tmp_path: Path, value: float
) -> None:
    lost = with_kl(report, "w4tensor", Interval(value, math.nan, math.nan, math.nan))
    axis = cost(saved, lost, tmp_path)
    assert len(intervals(axis)) == len(report.models) - 2
    low, high = axis.get_ylim()
    assert 0.001 < low < high < 1, "the others keep the axis"
    (mark,) = (line for line in axis.lines if line.get_marker() == "^")
    assert mark.get_xydata().tolist() == [[303, high]]
    assert "w4tensor\n(no finite number)" in text_boxes(axis)


def test_no_divergence_at_all_stands_at_the_lower_end(
    report: Report, saved: dict[str, Figure], tmp_path: Path
) -> None:
    axis = cost(saved, with_kl(report, "w8row", Interval(0.0, 0.0, 0.0, 0.0)), tmp_path)
    (mark,) = (line for line in axis.lines if line.get_marker() == "v")
    assert mark.get_xydata().tolist() == [[603, axis.get_ylim()[0]]]
    assert "w8row\n(0)" in text_boxes(axis)


def test_an_interval_that_reaches_to_0_ends_with_the_axis(
    report: Report, saved: dict[str, Figure], tmp_path: Path
) -> None:
    axis = cost(saved, with_kl(report, "w8row", Interval(0.004, -1e-9, 0.01, 0.002)), tmp_path)
    (found,) = (each for each in intervals(axis) if each[0] == 603)
    assert found[2] == pytest.approx((603, axis.get_ylim()[0]))
    assert found[3] == pytest.approx((603, 0.01))
