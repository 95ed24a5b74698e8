"""What a benchmark shows: a line while it works, a table, and where its results went."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from farthing.cli.terminal import console, dim

if TYPE_CHECKING:
    from farthing.bench.compare import Comparison
    from farthing.bench.rounds import Measurement, Spread
    from farthing.bench.trace_rounds import Played


@contextmanager
def status(title: str) -> Iterator[Callable[[str], None]]:
    """A line on a terminal that says what is being done; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda message: None
        return
    with console(stderr=True).status(title) as line:
        yield lambda message: line.update(f"{title}: {message}")


def print_measurements(title: str, measurements: Sequence[Measurement]) -> None:
    """The limits of the run and a row for each measurement."""
    from rich import box
    from rich.table import Table

    rates = measurements[0].rates
    loops = {**rates.integer, **rates.floating}
    speeds = ", ".join(f"{name} {rate:.0f}" for name, rate in loops.items())
    out = console()
    out.print(f"{title}; {counted(measurements[0].rounds, 'round')}")
    out.print(f"Limits: read {rates.read:.1f} GB/s; {speeds} GMAC/s", style="dim")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("Case", no_wrap=True)
    table.add_column("Part")
    for name in ("ms", "least to most", "tokens/s", "GB/s", "GMAC/s", "memory", "compute"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("bound by", no_wrap=True)
    for m in measurements:
        work, seconds = m.case.work, m.seconds
        table.add_row(
            m.case.name,
            m.case.part,
            _ms(seconds.median),
            f"{_ms(seconds.least)} to {_ms(seconds.most)}",
            f"{m.case.tokens / seconds.median:,.0f}" if m.case.part != "linear" else "",
            f"{work.total_bytes / seconds.median / 1e9:.1f}",
            f"{work.macs / seconds.median / 1e9:.1f}",
            _share(m.memory_share),
            _share(m.compute_share),
            m.binding,
        )
    out.print(table)
    out.print()


def print_barrier(threads: str, seconds: Spread) -> None:
    """What lies between two instructions of a pass."""
    us = [value * 1e6 for value in (seconds.median, seconds.least, seconds.most)]
    out = console()
    out.print(f"Barrier, {threads}: {us[0]:.2f} µs, {us[1]:.2f} to {us[2]:.2f}")
    out.print()


def print_comparisons(comparisons: Sequence[Comparison], peer: str) -> None:
    """Medians of both programs and the ratio, with its range."""
    from rich import box
    from rich.table import Table

    from farthing.bench.rounds import Spread

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("Tokens/s, median")
    for name in ("Farthing", "llama.cpp", "ratio", "least to most"):
        table.add_column(name, justify="right", no_wrap=True)
    for c in comparisons:
        ratio = c.ratio
        table.add_row(
            c.name,
            f"{Spread.of(c.farthing).median:.1f}",
            f"{Spread.of(c.peer).median:.1f}",
            f"{ratio.median:.2f}",
            f"{ratio.least:.2f} to {ratio.most:.2f}",
        )
    console().print(table)
    dim(f"{counted(len(comparisons[0].farthing), 'round')} in turns against {peer}")


def print_played(played: Sequence[Played]) -> None:
    """What users saw of each system, medians, and ratios to the last of them."""
    from rich import box
    from rich.table import Table

    from farthing.bench.trace_rounds import FIGURES

    last = played[-1]
    out = console()
    come = "all at once"
    if last.rates:
        come = f"{statistics.median(last.rates):.2f} a second (Poisson)"
    rounds = counted(len(last.summaries), "round")
    out.print(f"{last.summaries[0].requests} requests, {come}; medians of {rounds}")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("System", no_wrap=True)
    for name in ("tokens/s", "first token s", "p95", "latency s", "p95", "slots' waste"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in played:
        ratios = [each.ratio(figure, last).median for figure in FIGURES]
        values = [each.spread(figure).median for figure in FIGURES]
        wastes = [extra["kv_waste"] for extra in each.extras if "kv_waste" in extra]
        table.add_row(
            each.system.name,
            *(f"{value:.2f}" for value in values),
            f"{statistics.median(wastes):.0%}" if wastes else "",
        )
        if each is not last:
            table.add_row("  by that of " + last.system.name, *(f"{r:.2f}x" for r in ratios), "")
    out.print(table)
    out.print()


def say_where(count: int, path: object) -> None:
    """Where the results are."""
    dim(f"{counted(count, 'result')} appended to {path}")


def counted(count: int, word: str) -> str:
    """``count`` of ``word``: ``"1 round"``, ``"5 rounds"``."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def _ms(seconds: float) -> str:
    """Three digits, or all there are before the point."""
    ms = seconds * 1e3
    return f"{ms:,.0f}" if ms >= 100 else f"{ms:.3g}"


def _share(spread: Spread) -> str:
    return f"{spread.median:.0%}"
