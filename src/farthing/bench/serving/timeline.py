"""A picture of a run: a line for each request, and when its tokens came."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from farthing.bench.serving.metrics import Timed
from farthing.errors import FarthingError, InvalidParameterError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_QUEUE, _FIRST = "#c8c8c8", "#4c72b0"
_QUICK, _MIDDLE, _SLOW = "#55a868", "#dd8452", "#c44e52"


def check_drawing() -> None:
    """Raises :class:`FarthingError` if nothing can be drawn here."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise FarthingError(
            "--plot-timeline: needs matplotlib; pip install 'farthing[bench]'"
        ) from None


def itl_thresholds(text: str) -> tuple[float, float]:
    """Two milliseconds, such as ``25,50``. Raises :class:`InvalidParameterError`."""
    try:
        first, second = (float(part) for part in text.split(","))
    except ValueError:
        first, second = 1.0, 0.0
    if not 0 <= first <= second:
        raise InvalidParameterError(
            f"--timeline-itl-thresholds {text!r}: must be two rising milliseconds, such as 25,50"
        )
    return first, second


def draw_timeline(
    requests: Sequence[Timed], began: float, thresholds: tuple[float, float], path: Path
) -> None:
    """Draws ``requests`` into the file ``path``, whose name's end says its kind.

    Grey: waiting on this side. Blue: until the first chunk. Then each gap between two chunks in
    green, orange or red, by ``thresholds`` (milliseconds). Raises ``OSError``.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, min(max(3.0, len(requests) * 0.12), 60)), layout="constrained")
    _draw(figure, sorted(requests, key=lambda r: r.due), began, thresholds)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def _draw(
    figure: Figure, requests: Sequence[Timed], began: float, thresholds: tuple[float, float]
) -> None:
    from matplotlib.collections import LineCollection

    segments: list[list[tuple[float, float]]] = []
    colours: list[str] = []

    def add(row: int, start: float, end: float, colour: str) -> None:
        if end > start:
            segments.append([(start, row), (end, row)])
            colours.append(colour)

    for row, request in enumerate(requests):
        answer = request.answer
        start = answer.started - began
        add(row, request.due - began, start, _QUEUE)
        if not answer.success:
            continue
        add(row, start, start + answer.ttft, _FIRST)
        edges = start + answer.ttft + np.cumsum([0.0, *answer.itl])
        for gap, left, right in zip(answer.itl, edges[:-1], edges[1:], strict=True):
            add(row, float(left), float(right), _colour(gap * 1000, thresholds))
    axes = figure.subplots()
    axes.add_collection(LineCollection(segments, colors=colours, linewidths=3))
    axes.autoscale_view()
    axes.set_xlabel("seconds")
    axes.set_ylabel("request")
    axes.invert_yaxis()
    quick, slow = thresholds
    for colour, label in (
        (_QUEUE, "waits here"),
        (_FIRST, "to the first chunk"),
        (_QUICK, f"gap below {quick:g} ms"),
        (_MIDDLE, f"to {slow:g} ms"),
        (_SLOW, "above"),
    ):
        axes.plot([], [], color=colour, linewidth=3, label=label)
    figure.legend(loc="outside lower center", ncols=5, frameon=False)


def _colour(gap: float, thresholds: tuple[float, float]) -> str:
    quick, slow = thresholds
    return _QUICK if gap < quick else _MIDDLE if gap <= slow else _SLOW
