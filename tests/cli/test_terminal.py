"""Numbers as people read them, and text that a terminal may be given."""

from __future__ import annotations

import io
import json
import math
import sys

import pytest

from farthing.cli import terminal


class Screen(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (491_400_064, "468.6 MiB"),
        (1 << 30, "1.0 GiB"),
        (3 << 40, "3.0 TiB"),
        (5000 << 40, "5000.0 TiB"),
    ],
)
def test_human_bytes(count: int, expected: str) -> None:
    assert terminal.human_bytes(count) == expected


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (7, "7"),
        (135_000, "135 K"),
        (999_499, "999 K"),
        (999_500, "1 M"),
        (494_032_768, "494 M"),
        (1_543_714_304, "1.54 B"),
        (70_553_706_496, "70.6 B"),
    ],
)
def test_human_count(count: int, expected: str) -> None:
    assert terminal.human_count(count) == expected


def test_a_terminal_gets_no_control_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stdout", screen)
    terminal.write_text("a\tb\n\x1b]0;title\x07\x1b[2J\x08\x7f\x9b31mé水🌾\r")
    assert screen.getvalue() == "a\tb\n]0;title[2J31mé水🌾"


def test_a_file_gets_every_character(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO(newline="")
    monkeypatch.setattr(sys, "stdout", file)
    terminal.write_text("\x1b[2J\r\n")
    assert file.getvalue() == "\x1b[2J\r\n"


def test_json_keeps_the_languages(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.write_json({"text": "水は方円"})
    out = capsys.readouterr().out
    assert "水は方円" in out
    assert json.loads(out) == {"text": "水は方円"}


def test_json_has_null_where_a_number_is_not_finite(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.write_json({"a": [math.inf, (-math.inf, 1.5)], "b": {"c": math.nan, "d": 2}})
    out = capsys.readouterr().out
    assert json.loads(out) == {"a": [None, [None, 1.5]], "b": {"c": None, "d": 2}}


def test_lines_are_not_folded_when_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.print_facts({"Path": "/very/long" * 60, "[bold]": "[red]x[/red]"})
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert lines[0].split() == ["Path", "/very/long" * 60]
    assert lines[1].split() == ["[bold]", "[red]x[/red]"]
