"""Names beside points: none covers another where there is room."""

from __future__ import annotations

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from farthing.evaluation.figures.labels import Labelled, write_labels
from support.drawn_figures import overlaps, text_boxes


@pytest.fixture
def figure() -> Figure:
    return Figure(figsize=(9, 5.6), layout="constrained")


@pytest.fixture
def axis(figure: Figure) -> Axes:
    axis = figure.subplots()
    axis.set_xlim(0, 100)
    axis.set_ylim(0, 100)
    return axis


def points(count: int, spread: float) -> list[Labelled]:
    return [
        Labelled(50 + spread * (i % 3), 50 + spread * (i // 3), 49, 51, f"scheme {i}")
        for i in range(count)
    ]


def test_a_label_stands_to_the_right_where_nothing_is(figure: Figure, axis: Axes) -> None:
    (label,) = write_labels(figure, axis, [Labelled(50, 50, 40, 60, "w8row")])
    box = text_boxes(axis)["w8row"]
    x, y = axis.transData.transform((50, 50))
    assert x < box.x0 < x + 20
    assert box.y0 < y < box.y1
    assert label.arrow_patch is None


def test_a_crowd_is_labelled_without_overlaps(figure: Figure, axis: Axes) -> None:
    crowd = points(12, 1.5)
    written = write_labels(figure, axis, crowd)
    assert [text.get_text() for text in written] == [each.text for each in crowd]
    boxes = text_boxes(axis)
    assert overlaps(boxes) == []
    assert any(text.arrow_patch is not None for text in written), "the far ones have a line"
    middles = axis.transData.transform([(each.x, each.y) for each in crowd])
    for box in boxes.values():
        assert not any(box.contains(*middle) for middle in middles)


@pytest.mark.parametrize(("x", "y"), [(0, 0), (100, 0), (0, 100), (100, 100)])
def test_a_label_at_a_corner_stays_inside(figure: Figure, axis: Axes, x: int, y: int) -> None:
    write_labels(figure, axis, [Labelled(x, y, y, y, "a long name\nof two lines")])
    (box,) = text_boxes(axis).values()
    inside = axis.get_window_extent()
    assert inside.contains(box.x0, box.y0)
    assert inside.contains(box.x1, box.y1)


def test_where_there_is_no_room_every_point_still_has_its_name(figure: Figure, axis: Axes) -> None:
    crowd = points(60, 0.01)
    write_labels(figure, axis, crowd)
    assert sorted(text_boxes(axis)) == sorted(each.text for each in crowd)


def test_an_error_bar_is_not_covered(figure: Figure, axis: Axes) -> None:
    tall = Labelled(60, 50, 5, 95, "tall")
    left = Labelled(59, 50, 50, 50, "a name that would cross the bar")
    write_labels(figure, axis, [tall, left])
    box = text_boxes(axis)[left.text]
    x = axis.transData.transform((60, 50))[0]
    assert box.x1 < x or box.y0 > axis.transData.transform((60, 95))[1]
