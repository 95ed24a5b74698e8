"""Pictures of an evaluation, for a report."""

from __future__ import annotations

from pathlib import Path

from farthing.evaluation.drawing import FigureFormat, PictureFolder
from farthing.evaluation.figures.agreement import agreement_size, draw_agreement
from farthing.evaluation.figures.candidates import compared
from farthing.evaluation.figures.cost import draw_cost
from farthing.evaluation.figures.speed import draw_speed, speed_size
from farthing.evaluation.report import Report


def draw(report: Report, folder: Path, kind: FigureFormat) -> list[Path]:
    """Draws what was measured into files in ``folder``, which is made; returns their paths.

    What schemes cost and how they agree, where there is a reference; speed, where it was measured.
    A file is there whole or, if it was there before, as it was. Raises ``OSError`` naming it.
    """
    pictures = PictureFolder(folder, kind)
    if compared(report):
        pictures.draw("cost", (9, 5.6), lambda f: draw_cost(f, report))
        pictures.draw("agreement", agreement_size(report), lambda f: draw_agreement(f, report))
    if any(model.speed is not None for model in report.models):
        pictures.draw("speed", speed_size(report), lambda f: draw_speed(f, report))
    return pictures.drawn
