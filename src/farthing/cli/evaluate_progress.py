"""What is said while models are evaluated."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from farthing.cli.step_bar import StepBar

if TYPE_CHECKING:
    from farthing.evaluation.observer import Stage

_UNITS: dict[Stage, str] = {
    "text": "window",
    "paths": "position",
    "battery": "question",
    "speed": "batch",
}
_TOLD_BY_TENTHS: tuple[Stage, ...] = ("text", "paths")


class EvaluationProgress:
    """A bar on a terminal; elsewhere a line for each stage, and for each tenth of the long ones."""

    def __init__(self) -> None:
        self._bar = StepBar()
        self._stage: tuple[str, Stage] | None = None
        self._tenth = 0

    def note(self, message: str) -> None:
        """Writes a line, as it is: a name that it begins with stays what it is."""
        from farthing.cli.terminal import dim

        dim(message)

    def running(self, model: str, stage: Stage, done: int, total: int, figures: str) -> None:
        """A stage has come so far; the bar of the one before goes away."""
        from farthing.cli.terminal import dim

        begins = self._stage != (model, stage)
        if begins:
            self.finish()
            self._stage = (model, stage)
            self._tenth = 0
        title = _title(model, stage, done, total, figures)
        if sys.stderr.isatty():
            self._bar.advance(title, done, total)
        elif stage in _TOLD_BY_TENTHS:
            if done * 10 // total > self._tenth:
                self._tenth = done * 10 // total
                dim(title)
        elif begins:
            dim(f"{model}, {stage}")

    def finish(self) -> None:
        """Takes the bar away."""
        self._bar.finish()


def _title(model: str, stage: Stage, done: int, total: int, figures: str) -> str:
    unit = _UNITS.get(stage)
    if unit is None:  # bytes
        return f"{model}, {stage}"
    title = f"{model}, {unit} {done:,} of {total:,}"
    return f"{title}: {figures}" if figures else title
