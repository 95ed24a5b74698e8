"""Names written beside points, where they cover neither each other nor a point.

Few points need little: adjustText, the library for it, wants scipy, eight times as large as this
package.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from farthing.evaluation.drawing import GREY

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text
    from matplotlib.transforms import Bbox

_MARKER = 5  # points from its middle to its rim
_WITHOUT_LINE = 15
_LINE = {"arrowstyle": "-", "color": GREY, "linewidth": 0.7, "shrinkA": 0, "shrinkB": 4}

_Across = Literal["left", "center", "right"]
_Along = Literal["bottom", "center", "top"]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a label stands: so many points from its point, with this side or corner of it."""

    distance: float
    direction: tuple[float, float]
    across: _Across
    along: _Along

    @property
    def offset(self) -> tuple[float, float]:
        return self.direction[0] * self.distance, self.direction[1] * self.distance

    def box(self, middle: tuple[float, float], width: float, height: float, pixels: float) -> Bbox:
        """What a label takes, and a point around it; pixels, of which a point has so many."""
        from matplotlib.transforms import Bbox

        x, y = (m + o * pixels for m, o in zip(middle, self.offset, strict=True))
        x -= {"left": 0, "center": width / 2, "right": width}[self.across]
        y -= {"bottom": 0, "center": height / 2, "top": height}[self.along]
        return Bbox.from_bounds(x, y, width, height).padded(pixels)


_SIDES: tuple[tuple[tuple[float, float], _Across, _Along], ...] = (
    ((1, 0), "left", "center"),
    ((-1, 0), "right", "center"),
    ((0, 1), "center", "bottom"),
    ((0, -1), "center", "top"),
    ((0.7, 0.7), "left", "bottom"),
    ((0.7, -0.7), "left", "top"),
    ((-0.7, 0.7), "right", "bottom"),
    ((-0.7, -0.7), "right", "top"),
)
_PLACES = tuple(_Place(distance, *side) for distance in (9, 15, 24, 36, 50, 66) for side in _SIDES)
"""The nearest first: of those that cover as little, the first is taken."""


@dataclass(frozen=True, slots=True)
class Labelled:
    """A point, the ends of its error bar, and what to write beside it; in data's units."""

    x: float
    y: float
    low: float
    high: float
    text: str


def write_labels(figure: Figure, axis: Axes, points: Sequence[Labelled]) -> list[Text]:
    """Writes each label in the nearest free place inside ``axis``, whose limits are set.

    Where no place is free it takes the one that covers least. Farther ones get a line.
    """
    figure.draw_without_rendering()  # the layout has to be known
    pixels = figure.dpi / 72  # of a point
    inside = axis.get_window_extent()
    taken = [_covered_by(point, axis, _MARKER * pixels) for point in points]
    written = []
    for point in points:
        width, height = _extent(axis, point.text)
        x, y = axis.transData.transform((point.x, point.y))
        free: tuple[float, _Place, Bbox] | None = None
        for place in _PLACES:
            box = place.box((float(x), float(y)), width, height, pixels)
            covered = _covered(box, taken, inside)
            if free is None or covered < free[0]:
                free = covered, place, box
        assert free is not None
        taken.append(free[2])
        written.append(_write(axis, point, free[1]))
    return written


def _covered_by(point: Labelled, axis: Axes, rim: float) -> Bbox:
    """Pixels of a point's marker and its error bar."""
    from matplotlib.transforms import Bbox

    ends = axis.transData.transform([(point.x, y) for y in (point.low, point.y, point.high)])
    return Bbox([ends.min(axis=0) - rim, ends.max(axis=0) + rim])


def _extent(axis: Axes, text: str) -> tuple[float, float]:
    """Width and height, pixels."""
    label = axis.text(0, 0, text)
    box = label.get_window_extent()
    label.remove()
    return box.width, box.height


def _write(axis: Axes, point: Labelled, place: _Place) -> Text:
    label = axis.annotate(
        point.text,
        (point.x, point.y),
        place.offset,
        textcoords="offset points",
        horizontalalignment=place.across,
        verticalalignment=place.along,
        arrowprops=_LINE if place.distance > _WITHOUT_LINE else None,
    )
    label.set_in_layout(False)
    return label


def _covered(box: Bbox, taken: Sequence[Bbox], inside: Bbox) -> float:
    """Square pixels of ``box`` that are outside of ``inside`` or taken."""
    shared = [_shared(box, each) for each in taken]
    return box.width * box.height - _shared(box, inside) + sum(shared)


def _shared(one: Bbox, other: Bbox) -> float:
    width: float = min(one.x1, other.x1) - max(one.x0, other.x0)
    height: float = min(one.y1, other.y1) - max(one.y0, other.y0)
    return max(0.0, width) * max(0.0, height)
