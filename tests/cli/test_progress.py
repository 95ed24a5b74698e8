"""Progress of downloads and loads, where somebody looks and where nobody does."""

from __future__ import annotations

import io
import sys

import pytest

from farthing.cli.download import DownloadBar
from farthing.cli.loading import LoadBar


class Screen(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("FARTHING_HOME", "/where/models/are")
    return "/where/models/are"


def test_without_a_terminal_tenths_are_told_once(
    home: str, capsys: pytest.CaptureFixture[str]
) -> None:
    bar = DownloadBar()
    bar.start("model", 1000, 0)
    for done in range(0, 1001, 7):
        bar.advance(done, "part 1")
    bar.advance(1000, "part 2")
    bar.note("the hub did not answer")
    bar.finish()
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert lines[0] == f"Downloading model (1000 B) to {home}"
    assert lines[1:-1] == [f"model: {tenth}0 %" for tenth in range(1, 11)]
    assert lines[-1] == "the hub did not answer"


def test_a_resumed_download_says_what_is_here(
    home: str, capsys: pytest.CaptureFixture[str]
) -> None:
    bar = DownloadBar()
    bar.start("model", 1000, 950)
    bar.advance(1000, "")
    bar.finish()
    assert capsys.readouterr().err.splitlines() == [
        f"Downloading model (1000 B, 950 B of it are here) to {home}",
        "model: 100 %",
    ]


def test_a_terminal_sees_a_bar(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    bar = DownloadBar()
    bar.start("model", 4 << 20, 0)
    bar.advance(1 << 20, "part 1 of 4")
    bar.note("another process waits")
    bar.advance(4 << 20, "part 4 of 4")
    bar.finish()
    shown = screen.getvalue()
    assert home in shown
    assert "part 4 of 4" in shown
    assert "4.0/4.0 MiB" in shown
    assert "another process waits" in shown


def test_a_short_load_shows_nothing_and_a_long_one_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    bar = LoadBar("model")
    bar.advance(1, 10)
    bar.finish()
    assert screen.getvalue() == ""
    bar = LoadBar("model")
    monkeypatch.setattr(LoadBar, "PATIENCE", -1.0)
    bar.advance(1 << 20, 2 << 20)
    bar.advance(2 << 20, 2 << 20)
    bar.finish()
    assert "Loading model" in screen.getvalue()


def test_a_load_is_silent_where_nobody_looks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(LoadBar, "PATIENCE", -1.0)
    bar = LoadBar("model")
    bar.advance(1, 10)
    bar.finish()
    assert capsys.readouterr().err == ""
