"""A bar on a terminal for work that goes step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from farthing.cli.terminal import console

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class StepBar:
    """Says what is done, how much of it, and how long the rest will take; drawn on stderr."""

    def __init__(self) -> None:
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def advance(self, title: str, done: int, total: int) -> None:
        """``done`` of ``total`` steps; the first call draws the bar."""
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
        self._bar.update(self._task, description=title, completed=done)

    def finish(self) -> None:
        """Takes the bar away; the next call of :meth:`advance` draws another."""
        if self._bar is not None:
            self._bar.stop()
        self._bar = self._task = None
