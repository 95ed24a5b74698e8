"""A text to evaluate models on, options that leave out the rest, and an observer that remembers."""

from __future__ import annotations

from farthing.evaluation.observer import Stage

TEXT = (
    "It is a truth universally acknowledged, that a single man in possession of a good fortune, "
    "must be in want of a wife. However little known the feelings or views of such a man may be "
    "on his first entering a neighbourhood — “My dear Mr. Bennet,” said his lady to him one day, "
    "“have you heard that Netherfield Park is let at last?” Über den Wipfeln ist Ruh."
)
"""Austen 1813, Goethe 1780: some 400 bytes, not all of them ASCII."""

QUICK = ("--context", "32", "--battery", "none", "--no-speed")
"""Of ``farthing evaluate``: the text alone, in short windows."""


class Recorder:
    """An observer that remembers."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.stages: list[tuple[str, Stage, int, int]] = []

    def note(self, message: str) -> None:
        self.notes.append(message)

    def running(self, model: str, stage: Stage, done: int, total: int, figures: str) -> None:
        self.stages.append((model, stage, done, total))

    def of(self, model: str, stage: Stage) -> list[tuple[int, int]]:
        """How far it came, step by step."""
        return [(done, total) for m, s, done, total in self.stages if (m, s) == (model, stage)]
