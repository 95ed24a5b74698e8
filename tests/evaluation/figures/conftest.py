from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from farthing.evaluation.figures import draw
from farthing.evaluation.report import Report
from support.drawn_figures import keep_figures
from support.reports import make_report


@pytest.fixture(scope="package")
def report() -> Report:
    """Of seven schemes, one of them destroyed, with everything measured."""
    return make_report(max_loss=0.05)


@pytest.fixture
def saved(monkeypatch: pytest.MonkeyPatch) -> dict[str, Figure]:
    """What a test draws, by the file's name."""
    return keep_figures(monkeypatch)


@pytest.fixture
def drawn(report: Report, saved: dict[str, Figure], tmp_path: Path) -> dict[str, Figure]:
    """The figures of ``report``, in the folder ``drawn``."""
    draw(report, tmp_path / "new" / "drawn", "png")
    return saved
