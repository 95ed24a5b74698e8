"""How a load comes on: a bar on a terminal, elsewhere a line for each part."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

from farthing.cli.terminal import console, dim

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from farthing.bench.serving.load import Outcome

_REDRAW = 0.25  # seconds; drawing takes CPU that the server may want


class ServeProgress:
    """Shows the parts of a run on stderr while entered; nothing if ``silent``."""

    def __init__(self, *, silent: bool) -> None:
        self._silent = silent
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._what = ""
        self._done = self._failed = 0
        self._drawn = 0.0

    def __enter__(self) -> ServeProgress:
        if not self._silent and sys.stderr.isatty():
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.completed:,} of {task.total:,}"),
                TimeElapsedColumn(),
                console=console(stderr=True),
                transient=True,
                auto_refresh=False,
            )
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def begin(self, what: str, total: int) -> None:
        """Another part begins."""
        self._what, self._done, self._failed = what, 0, 0
        if self._bar is None:
            if not self._silent:
                dim(f"{what}: {total:,}" if total else what)
            return
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task(what, total=total)
        self._bar.refresh()

    def advance(self, outcome: Outcome) -> None:
        """One more is over."""
        self._done += 1
        self._failed += outcome.exchange is None or outcome.exchange.problem is not None
        now = time.monotonic()
        if self._bar is not None and self._task is not None and now - self._drawn >= _REDRAW:
            self._drawn = now
            failed = f", {self._failed:,} failed" if self._failed else ""
            self._bar.update(
                self._task, completed=self._done, description=self._what + failed, refresh=True
            )
