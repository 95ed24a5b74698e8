"""The figures of an evaluation as a table: a row a model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.table import Table

    from farthing.evaluation.agreement import Agreement
    from farthing.evaluation.report import Report
    from farthing.evaluation.statistics import Interval, Proportion
    from farthing.evaluation.summary import ModelFigures, SpeedFigures

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Column:
    """A figure of every model; left out where no model has it."""

    title: str
    cell: Callable[[ModelFigures], str | None]


def _quality() -> list[Column]:
    return [
        Column("Perpl.", lambda m: figure(m.text.perplexity.value)),
        Column("Change, 95 %", lambda m: _of(m.text.perplexity_ratio, change)),
        Column("KL", lambda m: _of(m.text.kl, lambda kl: f"{kl.mean.value:.4f}")),
        Column("Top", lambda m: _of(m.text.same_top, lambda top: f"{top.value:.1%}")),
        Column("Agreement, 95 %", lambda m: _of(m.paths, _agreement) if m.text.kl else None),
    ]


def _answers_and_cost(report: Report) -> list[Column]:
    penalty = f"{report.settings.repetition_penalty:g}"
    return [
        Column("Battery", lambda m: _of(m.battery, lambda b: _share(b.right))),
        Column(
            f"at {penalty}",
            lambda m: _of(m.battery, lambda b: _of(b.right_with_penalty, _share)),
        ),
        Column("MiB", lambda m: f"{m.size.weights / 2**20:,.0f}"),
        Column("Bits", lambda m: f"{m.size.bits_per_weight:.2f}"),
        Column("ms", lambda m: _of(m.speed, lambda s: f"{s.alone.seconds * 1e3:.1f}")),
        Column("Tokens/s", lambda m: _of(m.speed, _at_the_knee)),
    ]


def _text_more_closely() -> list[Column]:
    return [
        Column("Median perpl.", lambda m: figure(m.text.median_perplexity)),
        Column("Bits a byte", lambda m: f"{m.text.bits_per_byte.value:.4f}"),
        Column("Next token", lambda m: f"{m.text.right.value:.2%}"),
        Column("KL median", lambda m: _of(m.text.kl, lambda kl: f"{kl.median:.5f}")),
        Column("99 %", lambda m: _of(m.text.kl, lambda kl: f"{kl.p99:.4f}")),
        Column("most", lambda m: _of(m.text.kl, lambda kl: f"{kl.maximum:.3f}")),
    ]


def _intervals_of_text() -> list[Column]:
    return [
        Column("Perpl., 95 %", lambda m: _ends(m.text.perplexity, figure)),
        Column("Next token, 95 %", lambda m: _percent_ends(m.text.right)),
        Column("KL, 95 %", lambda m: _of(m.text.kl, lambda kl: _ends(kl.mean, "{:.4f}".format))),
        Column("Top, 95 %", lambda m: _of(m.text.same_top, _percent_ends)),
    ]


def _intervals_of_answers(report: Report) -> list[Column]:
    penalty = f"{report.settings.repetition_penalty:g}"
    return [
        Column("Battery, 95 %", lambda m: _of(m.battery, lambda b: _percent_ends(b.right))),
        Column(
            f"at {penalty}, 95 %",
            lambda m: _of(m.battery, lambda b: _of(b.right_with_penalty, _percent_ends)),
        ),
    ]


def _of(value: T | None, text: Callable[[T], str | None]) -> str | None:
    """``text`` of a value that there is."""
    return None if value is None else text(value)


def print_tables(report: Report) -> None:
    """What counts, its intervals, each as one table or where that is too wide as two; the rest."""
    from farthing.cli.terminal import console

    out = console()
    for blocks in (
        (_quality(), _answers_and_cost(report)),
        (_intervals_of_text(), _intervals_of_answers(report)),
        (_text_more_closely(),),
    ):
        tables = [_table(report.models, [column for block in blocks for column in block])]
        if out.measure(tables[0]).maximum > out.width:
            tables = [_table(report.models, block) for block in blocks]
        for table in tables:
            if len(table.columns) > 1:
                out.print()
                out.print(table)


def _table(models: Sequence[ModelFigures], block: Sequence[Column]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("Scheme" if any(m.scheme for m in models[1:]) else "Model", overflow="fold")
    shown = [column for column in block if any(column.cell(m) for m in models)]
    for column in shown:
        table.add_column(column.title, justify="right", overflow="fold")
    for model in models:
        table.add_row(model.name, *(column.cell(model) or "" for column in shown))
    return table


def figure(value: float) -> str:
    """Four figures; as a power of ten where there would be many."""
    return f"{value:.4g}" if value < 1e6 else f"{value:.2e}"


def change(ratio: Interval) -> str:
    """The ends of the interval of a ratio, as changes: ``+1.2 to +2.6 %``, ``x31 to x46``."""
    if ratio.high >= 10:
        return f"x{figure(ratio.low)} to x{figure(ratio.high)}"
    ends = [(end - 1) * 100 for end in (ratio.low, ratio.high)]
    digits = 2 if max(map(abs, ends)) < 1 else 1
    return f"{ends[0]:+.{digits}f} to {ends[1]:+.{digits}f} %"


def _agreement(found: Agreement) -> str:
    return f"{_share(found.share)} {_percent_ends(found.share)}"


def _percent_ends(found: Proportion) -> str:
    return f"{found.low * 100:.1f}-{found.high * 100:.1f} %"


def _ends(found: Interval, text: Callable[[float], str]) -> str | None:
    """The ends of an interval; None where it has none, of figures that are not finite."""
    if math.isnan(found.low):
        return None
    return f"{text(found.low)} to {text(found.high)}"


def _share(found: Proportion) -> str:
    return f"{found.count}/{found.total}"


def _at_the_knee(speed: SpeedFigures) -> str:
    return f"{speed.knee.tokens_per_second:.0f} at {speed.knee.batch}"
