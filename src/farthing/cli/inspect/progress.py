"""How far an inspection is: bars on a terminal, lines elsewhere."""

from __future__ import annotations

import sys

from farthing.cli.loading import LoadBar
from farthing.cli.step_bar import StepBar
from farthing.cli.terminal import dim


class InspectionProgress:
    """An observer that draws; each bar takes the place of the one before."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._bar = StepBar()
        self._loading: LoadBar | None = None
        self._what = ""
        self._tenth = 0

    def rounding(self, done: int, total: int) -> None:
        """Weights rounded to every scheme."""
        self._advance("rounding", done, total)

    def loading(self, done: int, total: int) -> None:
        """Bytes of weights in memory."""
        if self._loading is None:
            self.finish()
            self._loading = LoadBar(self._name)
        self._loading.advance(done, total)

    def reading(self, done: int, total: int) -> None:
        """Tokens of the prompt that went through the model."""
        self._advance("reading the prompt", done, total)

    def finish(self) -> None:
        """Takes the bars away."""
        if self._loading is not None:
            self._loading.finish()
            self._loading = None
        self._bar.finish()
        self._what = ""

    def _advance(self, what: str, done: int, total: int) -> None:
        title = f"{self._name}: {what}"
        if what != self._what:
            self.finish()
            self._what, self._tenth = what, 0
        if sys.stderr.isatty():
            self._bar.advance(title, done, total)
        elif done * 10 // total > self._tenth:
            self._tenth = done * 10 // total
            dim(f"{title}, {self._tenth * 10} %")
