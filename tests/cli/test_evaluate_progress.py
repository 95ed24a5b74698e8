"""What is said while models are evaluated."""

from __future__ import annotations

import io
import sys

import pytest

from farthing.cli.evaluate_progress import EvaluationProgress


class Screen(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def evaluation(progress: EvaluationProgress) -> None:
    """Twenty windows of a reference, and of a scheme that is packed and asked questions too."""
    progress.note("The reference is the file's own values")
    progress.note("w4g64 takes 603 MiB of disk")
    progress.running("reference", "loading", 7, 7, "")
    for done in range(1, 21):
        progress.running("reference", "text", done, 20, "")
    for done in (0, 5, 10):
        progress.running("w4g64", "packing", done, 10, "")
    for done in range(1, 21):
        progress.running("w4g64", "text", done, 20, "perplexity 2.718")
    for done in range(1, 17):
        progress.running("w4g64", "battery", done, 16, "")
    progress.finish()


def test_stages_are_told_once_and_windows_by_tenths_without_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    evaluation(EvaluationProgress())
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "The reference is the file's own values",
        "w4g64 takes 603 MiB of disk",
        "reference, loading",
        *(f"reference, window {done} of 20" for done in range(2, 21, 2)),
        "w4g64, packing",
        *(f"w4g64, window {done} of 20: perplexity 2.718" for done in range(2, 21, 2)),
        "w4g64, battery",
    ]


def test_a_terminal_sees_all_of_it_go_by(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    evaluation(EvaluationProgress())
    for text in (
        "reference, window 20 of 20",
        "w4g64, packing",
        "w4g64, window 20 of 20: perplexity 2.718",
        "w4g64, question 16 of 16",
    ):
        assert text in screen.getvalue()
