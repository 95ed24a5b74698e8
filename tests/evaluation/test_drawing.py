"""Folders that can take no pictures are known before anything is measured; files are whole."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from farthing.errors import FarthingError
from farthing.evaluation.drawing import FigureFormat, PictureFolder, check_drawing, plain
from support.full_disk import files_of_at_most


def test_without_matplotlib_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    check_drawing("--figures", tmp_path / "new" / "folder")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(FarthingError, match=r"--figures: needs matplotlib; pip install"):
        check_drawing("--figures", tmp_path)


def test_a_file_in_the_folders_place_is_refused_beforehand(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for folder in (file, file / "below"):
        with pytest.raises(FarthingError, match=rf"--figures {folder}: {file} is a file"):
            check_drawing("--figures", folder)


def test_a_place_that_no_folder_can_have_is_refused_beforehand(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("nothing")
    for folder in (link, link / "below"):
        with pytest.raises(FarthingError, match=rf"--figures {folder}: {link} is a link to noth"):
            check_drawing("--figures", folder)
    with pytest.raises(OSError, match="name too long"):
        check_drawing("--figures", tmp_path / ("w" * 5000))
    (tmp_path / "nothing").mkdir()
    check_drawing("--figures", link / "below")


def test_no_name_is_a_formula_or_breaks_a_file() -> None:
    assert plain("a_{b} 模型") == "a_{b} 模型"
    assert plain("$a$") == r"\$a\$"
    assert plain("a\x01b\udc80c\n") == "a\ufffdb\ufffdc\ufffd"


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_a_picture_that_finds_no_room_is_named_and_leaves_what_was_there(
    tmp_path: Path, kind: FigureFormat
) -> None:
    def fill(figure: Figure) -> None:
        figure.subplots().set_title("of this run")

    before = tmp_path / f"cost.{kind}"
    before.write_text("of an earlier run")
    pictures = PictureFolder(tmp_path, kind)
    with pytest.raises(OSError, match="File too large") as caught, files_of_at_most(1000):
        pictures.draw("cost", (9, 5), fill)
    assert caught.value.filename == str(before)
    assert before.read_text() == "of an earlier run"
    assert list(tmp_path.iterdir()) == [before]
    assert pictures.drawn == []
    pictures.draw("cost", (9, 5), fill)
    assert pictures.drawn == list(tmp_path.iterdir()) == [before]
    assert before.stat().st_size > 1000
