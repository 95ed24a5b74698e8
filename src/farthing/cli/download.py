"""Fetching a model with a progress bar on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from farthing.cli.terminal import console, dim, human_bytes
from farthing.errors import UnsupportedArchitectureError

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

    from farthing.download.progress import Progress


def fetch(model: str, progress: Progress | None = None) -> Path:
    """Path of a model named or given by path; downloads it if it is not here.

    ``progress``: who is told instead of a bar on stderr.

    Raises what :func:`farthing.catalog.resolve` raises, and UnsupportedArchitectureError before
    it downloads what cannot be opened.
    """
    from farthing import catalog

    problem = why_not_served(model)
    if problem is not None:
        raise UnsupportedArchitectureError(problem)
    return catalog.resolve(model, progress=progress or DownloadBar())


def why_not_served(model: str) -> str | None:
    """What is wrong with a model of the catalog that has no program here; None: nothing known."""
    from farthing import catalog
    from farthing.models.registry import find_family

    entry = catalog.find_to_fetch(model)
    if entry is not None:
        try:
            find_family(entry.architecture)
        except UnsupportedArchitectureError as error:
            return f"{entry.name}: {error}"
    return None


def size_on_disk(path: Path) -> int:
    """Bytes of a model's file, or of the files of its folder."""
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


class DownloadBar:
    """Draws a download: a bar on a terminal, a line for each tenth elsewhere.

    ``say`` takes such a line.
    """

    def __init__(self, say: Callable[[str], None] = dim) -> None:
        self._say = say
        self._bar: RichProgress | None = None
        self._task: TaskID | None = None
        self._name = ""
        self._total = 0
        self._tenth = 0

    def start(self, name: str, total: int, done: int) -> None:
        """A transfer of ``total`` bytes begins with ``done`` of them here."""
        self._name, self._total = name, total
        self._tenth = self._tenths(done)
        where = f" to {cache_folder()}"
        again = f", {human_bytes(done)} of it are here" if done else ""
        self._say(f"Downloading {name} ({human_bytes(total)}{again}){where}")
        if not sys.stderr.isatty():
            return
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task(name, total=total, completed=done)
        self._bar.start()

    def advance(self, done: int, part: str) -> None:
        """``done`` bytes of the whole have come, the last of them from ``part``."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, description=f"{self._name} {part}".strip())
        elif self._tenths(done) > self._tenth:
            self._tenth = self._tenths(done)
            self._say(f"{self._name}: {self._tenth * 10} %")

    def note(self, message: str) -> None:
        """Shows one line beside the bar."""
        if self._bar is not None:
            self._bar.console.print(message, style="dim")
        else:
            self._say(message)

    def finish(self) -> None:
        """Takes the bar away."""
        if self._bar is not None:
            self._bar.stop()
        self._bar = self._task = None

    def _tenths(self, done: int) -> int:
        return done * 10 // self._total if self._total else 0


def cache_folder() -> Path:
    """Farthing's own folder, where what was fetched and what was measured is kept."""
    from farthing.download.settings import DownloadSettings

    return DownloadSettings.from_environment().home
