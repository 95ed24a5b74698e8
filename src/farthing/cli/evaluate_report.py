"""What ``farthing evaluate`` prints."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from farthing.evaluation.comparison import Pair
    from farthing.evaluation.recommendation import Recommendation
    from farthing.evaluation.report import Report


def write_report(report: Report) -> None:
    """As JSON, with what the figures depend on."""
    from farthing.bench.records import machine_facts, software_facts
    from farthing.cli.terminal import write_json

    write_json({**_plain(report), "machine": machine_facts(), "software": software_facts()})


def _plain(value: Any) -> Any:
    """As ``dataclasses.asdict``, with what properties say: every figure that people are told."""
    if is_dataclass(value):
        names = [field.name for field in fields(value)]
        names += [name for name, kind in vars(type(value)).items() if isinstance(kind, property)]
        return {name: _plain(getattr(value, name)) for name in names}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


def print_report(report: Report) -> None:
    """Facts, the table, a sentence for each comparison, and what is recommended."""
    from farthing.cli.evaluate_table import print_tables
    from farthing.cli.terminal import print_facts

    print_facts(_facts(report))
    print_tables(report)
    _print_verdicts(report)
    if report.recommendation is not None:
        _print_recommendation(report.recommendation)


def _facts(report: Report) -> dict[str, str]:
    from farthing.cli.terminal import human_bytes

    tokens, memory = report.tokens, report.memory
    facts = {"Model": report.model}
    if report.reference_is is not None:
        facts["Reference"] = report.reference_is
    facts["Text"] = (
        f"{report.text}, {tokens.windows} of {tokens.available_windows} windows of "
        f"{tokens.context} tokens, {tokens.scored:,} tokens scored ({tokens.scored_bytes:,} bytes)"
    )
    if report.positions:
        facts["Greedy paths"] = f"{report.positions:,} positions of {report.paths:,} paths"
    if report.battery is not None:
        facts["Battery"] = f"{report.battery}, {_questions(report)} questions"
    in_memory = f"{human_bytes(memory.model_weights)} of weights"
    if memory.reference_weights:
        in_memory += (
            f" and {human_bytes(memory.reference_head)} of the reference's head; before, "
            f"{human_bytes(memory.reference_weights)} of the reference alone; "
            f"{human_bytes(memory.states_on_disk)} of states on disk"
        )
    facts["Memory"] = f"{in_memory}; {human_bytes(memory.peak_resident)} of the process at most"
    return facts


def _questions(report: Report) -> int:
    battery = report.models[0].battery
    return 0 if battery is None else battery.right.total


def _print_verdicts(report: Report) -> None:
    from rich.table import Table
    from rich.text import Text

    from farthing.cli.terminal import console

    out = console()
    for pair in report.pairs:
        out.print()
        out.print(Text(_heading(pair, report), style="bold"))
        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        for name, verdict in _verdicts(pair, report):
            grid.add_row(f"  {name}", Text(verdict))
        out.print(grid)


def _heading(pair: Pair, report: Report) -> str:
    if report.reference_is is not None and pair.second == report.models[0].name:
        return f"{pair.first} against the reference"
    return f"{pair.first} against {pair.second}"


def _verdicts(pair: Pair, report: Report) -> list[tuple[str, str]]:
    words = pair.verdicts
    penalty = f"Battery at {report.settings.repetition_penalty:g}"
    named = [
        ("Perplexity", words.perplexity),
        ("Next token", words.next_token),
        ("Agreement", words.agreement),
        ("Battery", words.battery),
        (penalty, words.battery_with_penalty),
    ]
    return [(name, verdict) for name, verdict in named if verdict is not None]


def _print_recommendation(found: Recommendation) -> None:
    from farthing.cli.terminal import console
    from farthing.evaluation.verdicts import points_in_words

    out = console()
    out.print()
    out.print(
        f"Smallest that is equivalent to the reference within {points_in_words(found.margin)}: "
        f"{found.equivalent or 'none of these'}",
        style="bold",
    )
    out.print(
        f"Smallest that loses less than {points_in_words(found.max_loss)}: "
        f"{found.within_loss or 'none of these'}",
        style="bold",
    )
