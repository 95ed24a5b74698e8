"""Writing to the terminal, and to whatever stands in its place."""

from __future__ import annotations

import json
import math
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

# Everything a terminal obeys rather than shows, but for newline and tab.
_CONTROLS = {code: None for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}


def console(*, stderr: bool = False) -> Console:
    """A rich console on stdout or stderr; lines are never folded when nobody looks at them."""
    from rich.console import Console

    class PipeConsole(Console):
        def on_broken_pipe(self) -> None:
            raise  # rich would exit 1; ErrorReportingGroup knows better

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else 10_000
    return PipeConsole(file=stream, width=width, highlight=False, markup=False, emoji=False)


def dim(text: str) -> None:
    """Writes a line about the answer to stderr, apart from the answer itself."""
    console(stderr=True).print(text, style="dim")


def write_text(text: str) -> None:
    """Writes a piece of a model's answer to stdout at once.

    A terminal gets no control characters: a model's words must not move its cursor.
    """
    if sys.stdout.isatty():
        text = text.translate(_CONTROLS)
    sys.stdout.write(text)
    sys.stdout.flush()


def write_json(value: Any) -> None:
    """Writes ``value`` to stdout as indented JSON; null for numbers that are not finite."""
    text = json.dumps(_with_nulls(value), indent=2, ensure_ascii=False, allow_nan=False)
    sys.stdout.write(text + "\n")


def _with_nulls(value: Any) -> Any:
    """JSON has no infinity, and no number that is none."""
    if isinstance(value, dict):
        return {key: _with_nulls(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_with_nulls(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def human_bytes(count: int | float) -> str:
    """``count`` in the largest binary unit that leaves at least 1: ``"379.4 MiB"``."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def human_count(count: int) -> str:
    """``count`` parameters as people say it: ``"494 M"``, ``"1.54 B"``."""
    if count < 999_500:
        return f"{count / 1e3:.0f} K" if count >= 1000 else str(count)
    if count < 999_500_000:
        return f"{count / 1e6:.0f} M"
    return f"{count / 1e9:.3g} B"


def print_facts(facts: dict[str, str]) -> None:
    """Writes names and values in two columns to stdout."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in facts.items():
        grid.add_row(Text(name), Text(value))
    console().print(grid)
