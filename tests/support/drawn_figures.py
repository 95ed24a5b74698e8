"""What was drawn, as numbers."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox


def keep_figures(monkeypatch: pytest.MonkeyPatch) -> dict[str, Figure]:
    """Figures that are saved from now on, by their file's name."""
    saved: dict[str, Figure] = {}
    save = Figure.savefig

    def keep(figure: Figure, path: Path, **options: Any) -> None:
        saved[path.name.partition(".")[0]] = figure
        save(figure, path, **options)

    monkeypatch.setattr(Figure, "savefig", keep)
    return saved


def intervals(axis: Axes) -> list[tuple[float, float, tuple[float, float], tuple[float, float]]]:
    """Of each error bar x, y, and its two ends (x, y)."""
    found = []
    for container in axis.containers:
        assert isinstance(container, ErrorbarContainer)
        (x,), (y,) = container[0].get_data()
        (low, high) = container[2][0].get_segments()[0].tolist()
        found.append((float(x), float(y), tuple(low), tuple(high)))
    return found


def legend(figure: Figure) -> list[str]:
    """The entries of its only legend."""
    (found,) = figure.legends
    return [text.get_text() for text in found.get_texts()]


def text_boxes(axis: Axes) -> dict[str, Bbox]:
    """Pixels that each text in ``axis`` covers, without the line to its point."""
    axis.figure.draw_without_rendering()
    return {text.get_text(): Text.get_window_extent(text) for text in axis.texts}


def overlaps(boxes: dict[str, Bbox]) -> list[tuple[str, str]]:
    """Texts that cover each other."""
    return [(a, b) for a, b in combinations(boxes, 2) if boxes[a].overlaps(boxes[b])]
