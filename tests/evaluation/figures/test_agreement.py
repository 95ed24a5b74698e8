"""Agreement and the difference at the next token: drawn as they were found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from farthing.evaluation.figures import draw
from farthing.evaluation.report import Report
from support.drawn_figures import intervals, legend, text_boxes
from support.reports import SCHEMES, Made, make_report

KEPT = ["w8row", "w6g64", "w5g64", "nf4g64", "w4g64", "w4g128"]
"""The largest first; without the one that is destroyed."""


def arrows(axis: Axes) -> list[tuple[str, float, float]]:
    return [
        (line.get_marker(), *map(float, line.get_xydata()[0]))
        for line in axis.lines
        if line.get_marker() in ("<", ">")
    ]


def test_rows_are_the_schemes_from_the_largest_to_the_smallest(drawn: dict[str, Figure]) -> None:
    shares, differences = drawn["agreement"].axes
    assert [label.get_text() for label in shares.get_yticklabels()] == [*KEPT, "w4tensor"]
    for axis in (shares, differences):
        bottom, top = axis.get_ylim()
        assert top < 0 < 6 < bottom
        assert [y for _, y, _, _ in intervals(axis)] == list(range(6))


def test_agreement_is_drawn_as_it_was_found(drawn: dict[str, Figure], report: Report) -> None:
    axis = drawn["agreement"].axes[0]
    models = {model.name: model for model in report.models}
    for name, (x, y, low, high) in zip(KEPT, intervals(axis), strict=True):
        found = models[name].paths
        assert found is not None
        assert x == pytest.approx(100 * found.share.value)
        assert low == pytest.approx((100 * found.share.low, y))
        assert high == pytest.approx((100 * found.share.high, y))
        assert f"{100 * found.share.value:.1f} %" in text_boxes(axis)
    assert "100 of them, 95 %" in axis.get_title(loc="left")


def test_differences_are_drawn_as_they_were_found(drawn: dict[str, Figure], report: Report) -> None:
    axis = drawn["agreement"].axes[1]
    tests = {p.first: p.equivalence for p in report.pairs if p.second == "reference"}
    for name, (x, y, low, high) in zip(KEPT, intervals(axis), strict=True):
        assert x == pytest.approx(100 * tests[name].difference)
        assert low == pytest.approx((100 * tests[name].low90, y))
        assert high == pytest.approx((100 * tests[name].high90, y))
    assert "2,000 tokens, 90 %" in axis.get_title(loc="left")
    assert "−4.00" in text_boxes(axis)


def test_the_margin_is_a_band_and_what_is_equivalent_is_marked(
    drawn: dict[str, Figure], report: Report
) -> None:
    axis = drawn["agreement"].axes[1]
    (band,) = axis.patches
    assert (band.get_x(), band.get_x() + band.get_width()) == pytest.approx((-1, 1))
    tests = {p.first: p.equivalence for p in report.pairs if p.second == "reference"}
    faces = {
        name: container[0].get_markerfacecolor()
        for name, container in zip(KEPT, axis.containers, strict=True)
    }
    equivalent = {name for name in KEPT if tests[name].equivalent}
    assert equivalent == {"w8row", "w6g64", "w5g64"}
    assert {name for name in KEPT if faces[name] == faces["w8row"]} == equivalent
    assert "shaded: within 1 point" in axis.get_title(loc="left")


def test_a_destroyed_model_stands_at_the_end_and_the_others_keep_the_axis(
    drawn: dict[str, Figure],
) -> None:
    shares, differences = drawn["agreement"].axes
    assert arrows(shares) == [("<", shares.get_xlim()[0], 6)]
    assert arrows(differences) == [("<", differences.get_xlim()[0], 6)]
    assert shares.get_xlim()[0] > 60
    low, high = differences.get_xlim()
    assert -8 < low == -high
    assert "0.0 %" in text_boxes(shares)
    assert "−27.95" in text_boxes(differences)
    assert legend(drawn["agreement"])[-1] == "beyond the axis"


def test_what_is_far_better_stands_at_the_other_end(
    saved: dict[str, Figure], tmp_path: Path
) -> None:
    made = (SCHEMES[1], Made("other", 500, 0.2, 0, 600))
    draw(make_report(made, speed=False), tmp_path, "png")
    axis = saved["agreement"].axes[1]
    assert arrows(axis) == [(">", axis.get_xlim()[1], 1)]
    assert legend(saved["agreement"]) == [
        "equivalent within 1 point",
        "better by more than 1 point",
        "beyond the axis",
    ]


@pytest.mark.parametrize("margin", [0.0001, 0.5])
def test_any_margin_leaves_an_axis_that_shows_the_schemes(
    saved: dict[str, Figure], tmp_path: Path, margin: float
) -> None:
    draw(make_report(SCHEMES[:4], margin=margin, speed=False), tmp_path, "png")
    axis = saved["agreement"].axes[1]
    assert arrows(axis) == []
    (low, high), reach = axis.get_xlim(), 100 * margin
    for _, _, left, right in intervals(axis):
        assert low < left[0] < right[0] < high
    assert low < -reach < reach < high


def test_models_that_all_agree_little_are_all_shown(
    saved: dict[str, Figure], tmp_path: Path
) -> None:
    made = [replace(each, other_tokens=100) for each in SCHEMES[:2]]
    draw(make_report(made, speed=False), tmp_path, "png")
    axis = saved["agreement"].axes[0]
    assert [x for x, *_ in intervals(axis)] == [0, 0]
    assert arrows(axis) == []
