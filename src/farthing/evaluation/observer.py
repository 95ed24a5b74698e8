"""Who is told how far an evaluation is."""

from __future__ import annotations

from typing import Literal, Protocol

Stage = Literal["packing", "loading", "text", "paths", "battery", "speed"]
"""What is done with a model; the first two count bytes, then windows, positions, questions and the
sequences of a batch."""


class Observer(Protocol):
    """Is told how far things are."""

    def note(self, message: str) -> None:
        """A fact worth a line, such as the disk that is taken, written as it is to be read."""

    def running(self, model: str, stage: Stage, done: int, total: int, figures: str) -> None:
        """``done`` of ``total`` of a stage; ``figures`` is what is known so far, or empty."""
