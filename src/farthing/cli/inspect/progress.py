"""How far an inspection is: bars on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from farthing.cli.loading import LoadBar
from farthing.cli.terminal import console, dim

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class InspectionProgress:
    """An observer that draws; each bar takes the place of the one before."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loading: LoadBar | None = None
        self._bar: Progress | None = None
        self._task: TaskID | None = None
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
        if self._bar is not None:
            self._bar.stop()
        self._loading = self._bar = self._task = None
        self._what = ""

    def _advance(self, what: str, done: int, total: int) -> None:
        title = f"{self._name}: {what}"
        if what != self._what:
            self.finish()
            self._what, self._tenth = what, 0
        if not sys.stderr.isatty():
            if done * 10 // total > self._tenth:
                self._tenth = done * 10 // total
                dim(f"{title}, {self._tenth * 10} %")
            return
        if self._bar is None:
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TimeRemainingColumn(),
                console=console(stderr=True),
                transient=True,
            )
            self._task = self._bar.add_task(title, total=total)
            self._bar.start()
        assert self._task is not None
        self._bar.update(self._task, completed=done)
