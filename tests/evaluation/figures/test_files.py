"""Pictures of an evaluation: which there are, and that their files are whole."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import matplotlib.image
from matplotlib.figure import Figure

from farthing.evaluation.figures import draw
from farthing.evaluation.report import Report
from support.reports import SCHEMES, make_report

NAMES = ["cost", "agreement", "speed"]


def test_pictures_are_of_a_report_s_size_and_not_empty(
    drawn: dict[str, Figure], tmp_path: Path
) -> None:
    folder = tmp_path / "new" / "drawn"
    assert list(drawn) == NAMES
    assert sorted(path.name for path in folder.iterdir()) == sorted(f"{n}.png" for n in NAMES)
    for name in NAMES:
        pixels = matplotlib.image.imread(folder / f"{name}.png")
        height, width = pixels.shape[:2]
        assert 1200 <= width <= 2000
        assert 500 <= height <= 1500
        assert 0.01 < (pixels[..., :3].min(axis=2) < 0.9).mean() < 0.6


def test_every_axis_says_what_it_shows(drawn: dict[str, Figure]) -> None:
    for name, figure in drawn.items():
        for axis in figure.axes:
            assert axis.get_title(loc="left"), name
            assert axis.get_xlabel(), name
        first = figure.axes[0]
        assert first.get_ylabel() or [t.get_text() for t in first.get_yticklabels()], name


def test_nothing_leaves_the_picture(drawn: dict[str, Figure]) -> None:
    for name, figure in drawn.items():
        figure.draw_without_rendering()
        whole = figure.bbox.padded(1)
        tight = figure.get_tightbbox().transformed(figure.dpi_scale_trans)
        assert whole.contains(tight.x0, tight.y0), name
        assert whole.contains(tight.x1, tight.y1), name


def test_only_what_was_measured_is_drawn(saved: dict[str, Figure], tmp_path: Path) -> None:
    alone = draw(make_report(reference=False), tmp_path / "alone", "png")
    assert [path.name for path in alone] == ["speed.png"]
    beside = make_report(SCHEMES[:1], positions=False, speed=False)
    assert [path.name for path in draw(beside, tmp_path / "beside", "svg")] == [
        "cost.svg",
        "agreement.svg",
    ]
    (axis,) = saved["agreement"].axes
    assert "90 %" in axis.get_title(loc="left")


def test_svg_files_are_the_same_bytes_again(report: Report, tmp_path: Path) -> None:
    once, twice = (draw(report, tmp_path / name, "svg") for name in "ab")
    assert [path.name for path in once] == [f"{name}.svg" for name in NAMES]
    assert [path.read_bytes() for path in once] == [path.read_bytes() for path in twice]
    assert all(path.read_text().startswith("<?xml") for path in once)


def test_any_name_can_stand_in_a_picture(saved: dict[str, Figure], tmp_path: Path) -> None:
    name = "$a_{b$ 模型\udc80\n" + 60 * "x"
    report = make_report((replace(SCHEMES[0], name=name),), model=f"/models/{name}")
    for kind in ("png", "svg"):
        assert len(draw(report, tmp_path, kind)) == 3  # and a warning is an error here
    title = saved["cost"].axes[0].get_title(loc="left")
    assert title.startswith(r"\$a_{b\$ 模型" + "\ufffd\ufffdxx")
    assert "xxx…xxx" in title
    assert "/models" not in title
