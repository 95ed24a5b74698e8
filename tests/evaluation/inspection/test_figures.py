"""Pictures: that they are there, readable, and made of what was found."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import matplotlib.image
import pytest
from matplotlib.figure import Figure

from farthing.evaluation.inspection import figures
from farthing.evaluation.inspection.figures import draw
from farthing.evaluation.inspection.inspect import Inspection, Settings, inspect
from support.tiny_models import make_tiny_model

NAMES = ("errors", "anatomy", "outliers", "octaves", "levels")


class Unwatched:
    """An observer that does not care."""

    def rounding(self, done: int, total: int) -> None: ...
    def loading(self, done: int, total: int) -> None: ...
    def reading(self, done: int, total: int) -> None: ...


@pytest.fixture(scope="module")
def found(planted_model: Path) -> Inspection:
    return inspect(
        planted_model, Settings(prompt="A farthing is a fourth of a penny."), Unwatched()
    )


@pytest.fixture
def drawn(found: Inspection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Figure]:
    """The figures by their file's name, as they were saved."""
    saved: dict[str, Figure] = {}
    save = Figure.savefig

    def keep(figure: Figure, path: Path, **options: Any) -> None:
        saved[path.name.partition(".")[0]] = figure
        save(figure, path, **options)

    monkeypatch.setattr(Figure, "savefig", keep)
    paths = draw(found, tmp_path / "new" / "folder", "png")
    assert [path.name for path in paths] == [f"{name}.png" for name in NAMES]
    return saved


def test_pictures_are_of_a_report_s_size_and_not_empty(
    drawn: dict[str, Figure], tmp_path: Path
) -> None:
    for name in NAMES:
        pixels = matplotlib.image.imread(tmp_path / "new" / "folder" / f"{name}.png")
        height, width = pixels.shape[:2]
        assert 1200 <= width <= 2000
        assert 500 <= height <= 1500
        assert 0.01 < (pixels[..., :3].min(axis=2) < 0.9).mean() < 0.6


def test_every_axis_says_what_it_shows(drawn: dict[str, Figure]) -> None:
    for name, figure in drawn.items():
        axes = [axis for axis in figure.axes if axis.axison]
        assert axes
        assert all(axis.get_title(loc="left") for axis in axes)
        assert any(axis.get_xlabel() for axis in axes), name
        assert any(axis.get_ylabel() for axis in axes), name


def test_errors_have_a_panel_a_projection_and_a_line_a_scheme(
    drawn: dict[str, Figure], found: Inspection
) -> None:
    assert found.errors is not None
    panels = {axis.get_title(loc="left"): axis for axis in drawn["errors"].axes if axis.axison}
    assert list(panels)[3] == "self_attn.o_proj"
    assert len(panels) == 7
    lines = {line.get_label(): line for line in panels["mlp.down_proj"].lines}
    for each in found.errors:
        expected = [each.errors[f"model.layers.{i}.mlp.down_proj.weight"] for i in range(3)]
        assert lines[each.scheme].get_ydata().tolist() == expected
        assert lines[each.scheme].get_xdata().tolist() == [0, 1, 2]


def test_outliers_are_drawn_as_they_were_found(drawn: dict[str, Figure], found: Inspection) -> None:
    assert found.outliers is not None
    lines = {line.get_label(): line for line in drawn["outliers"].axes[0].lines}
    points = found.outliers.points
    largest = lines["largest dimension"].get_ydata().tolist()
    assert largest == [point.all_tokens.maximum for point in points]
    median = lines["median dimension"].get_ydata().tolist()
    assert median == [point.all_tokens.median for point in points]
    heights = [int(bar.get_height()) for bar in drawn["octaves"].axes[0].patches]
    assert sum(heights) == 64


def test_a_mixture_of_experts_has_panels_of_means(tmp_path: Path) -> None:
    path = make_tiny_model("qwen3-moe-mixed", tmp_path / "moe")
    settings = Settings(frozenset({"errors"}), ("w4row",))
    found = inspect(path, settings, Unwatched())
    panels = figures._panels(found.errors or ())
    assert [len(names) for names in panels["mlp.experts.up_proj"].values()] == [5, 5]
    assert list(panels["mlp.up_proj"]) == [0], "the first layer is plain"
    assert [path.name for path in draw(found, tmp_path, "png")] == ["errors.png"]


def test_svg_files_are_the_same_bytes_again(found: Inspection, tmp_path: Path) -> None:
    once, twice = (draw(found, tmp_path / name, "svg") for name in "ab")
    assert [path.suffix for path in once] == [".svg"] * 5
    assert [path.read_bytes() for path in once] == [path.read_bytes() for path in twice]
    assert once[0].read_text().startswith("<?xml")


def test_any_name_of_a_model_can_stand_in_a_title(planted_model: Path, tmp_path: Path) -> None:
    path = tmp_path / "$a_{b$ 模型"
    shutil.copytree(planted_model, path)
    settings = Settings(frozenset({"outliers"}), prompt="A farthing.")
    found = inspect(path, settings, Unwatched())
    assert len(draw(found, tmp_path / "figures", "png")) == 2  # and a warning is an error here
