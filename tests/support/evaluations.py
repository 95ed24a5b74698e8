"""A text to evaluate models on, and an observer that remembers."""

from __future__ import annotations

from pathlib import Path

from farthing.evaluation.divergence import Scores

TEXT = (
    "It is a truth universally acknowledged, that a single man in possession of a good fortune, "
    "must be in want of a wife. However little known the feelings or views of such a man may be "
    "on his first entering a neighbourhood — “My dear Mr. Bennet,” said his lady to him one day, "
    "“have you heard that Netherfield Park is let at last?” Über den Wipfeln ist Ruh."
)
"""Austen 1813, Goethe 1780: some 400 bytes, not all of them ASCII."""


class Recorder:
    """An observer that remembers."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.loads: list[Path] = []  # finished
        self.windows: list[tuple[Path, int, int]] = []

    def note(self, message: str) -> None:
        self.notes.append(message)

    def loading(self, path: Path, done: int, total: int) -> None:
        if done == total:
            self.loads.append(path)

    def running(self, path: Path, done: int, total: int, scores: list[Scores]) -> None:
        self.windows.append((path, done, total))
