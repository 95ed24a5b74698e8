"""``farthing evaluate --figures``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from support.command_line import CommandLine
from support.evaluations import QUICK


def test_pictures_are_of_the_schemes_and_come_last(
    farthing: CommandLine, tiny_model: str, tmp_path: Path
) -> None:
    folder = tmp_path / "new" / "pictures"
    options = ("--schemes", "w8row,w4row", "--tokens", "320", "--positions", "4", *QUICK)
    result = farthing(
        "evaluate", tiny_model, *options, "--figures", str(folder), "--figure-format", "svg"
    )
    assert result.returncode == 0, result.stderr
    assert "w4row against the reference" in result.stdout
    assert sorted(path.name for path in folder.iterdir()) == ["agreement.svg", "cost.svg"]
    words = (folder / "cost.svg").read_text(encoding="utf-8")
    for name in ("w8row", "w4row", "packed weights, MiB"):
        assert f"<!-- {name}" in words
    assert result.stderr.splitlines()[-1] == f"cost.svg, agreement.svg: in {folder}"


def test_of_a_model_alone_its_speed_is_drawn(
    farthing: CommandLine, tiny_model: str, tmp_path: Path
) -> None:
    options = ("--context", "32", "--tokens", "64", "--battery", "none", "--json")
    result = farthing("evaluate", tiny_model, *options, "--figures", str(tmp_path))
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["models"][0]["speed"]["alone"]["batch"] == 1
    (picture,) = tmp_path.iterdir()
    assert picture.name == "speed.png"
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_figures_without_matplotlib_are_refused_at_once(
    farthing: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = farthing("evaluate", "no-such-model", "--figures", str(tmp_path))
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert line == "farthing: error: --figures: needs matplotlib; pip install 'farthing[bench]'"
