"""How a batch comes on: a bar on a terminal, elsewhere a line now and then."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

from farthing.cli.terminal import console, dim

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from farthing.batch.run import Counts

_SILENCE = 60.0  # seconds without a line where nobody sees a bar
_REDRAW = 0.1  # seconds


class BatchProgress:
    """Shows :class:`~farthing.batch.run.Counts` on stderr while entered."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._tenth = 0
        self._told = time.monotonic()

    def __enter__(self) -> BatchProgress:
        if sys.stderr.isatty():
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            self._bar = Progress(
                BarColumn(),
                TextColumn("{task.completed:,} of {task.total:,} lines{task.description}"),
                TimeRemainingColumn(),
                console=console(stderr=True),
                transient=True,
            )
            self._task = self._bar.add_task("", total=self._total)
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

    def update(self, counts: Counts) -> None:
        """Shows how far it is; cheap enough for every token."""
        now = time.monotonic()
        if self._bar is not None:
            if now - self._told >= _REDRAW:
                self._told = now
                assert self._task is not None
                self._bar.update(self._task, completed=counts.finished, description=_speed(counts))
            return
        tenth = counts.finished * 10 // max(self._total, 1)
        if tenth > self._tenth or now - self._told >= _SILENCE:
            self._tenth, self._told = tenth, now
            dim(f"{counts.finished:,} of {self._total:,} lines{_speed(counts)}")

    def note(self, message: str) -> None:
        """Shows a line above the bar."""
        if self._bar is not None:
            self._bar.console.print(message, style="dim")
        else:
            dim(message)


def _speed(counts: Counts) -> str:
    errors = "" if not counts.errors else f" · {_counted(counts.errors, 'error')}"
    return f" · {counts.tokens_per_second:,.1f} tokens/s{errors}"


def summary(counts: Counts, kv_waste: float | None) -> str:
    """What a run came to, in one line.

    ``kv_waste``: share of the reserved KV cache that held nothing, where that is of interest.
    """
    parts = [
        _counted(counts.answered + counts.errors, "request"),
        _counted(counts.errors, "error"),
        f"{counts.prompt_tokens:,} prompt tokens ({counts.cached_tokens:,} cached)",
        f"{counts.completion_tokens:,} tokens",
        f"{counts.seconds:,.1f} s",
        f"{counts.tokens_per_second:,.1f} tokens/s",
    ]
    if kv_waste is not None:
        parts.append(f"{kv_waste:.1%} of the reserved KV cache held nothing")
    if counts.earlier:
        parts.insert(2, f"{_counted(counts.earlier, 'line')} from before")
    return " · ".join(parts)


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
