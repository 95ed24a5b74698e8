"""A trace played on several systems in turns, all at once and at a steady rate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from farthing.bench.records import Record, head
from farthing.bench.rounds import Spread
from farthing.bench.trace import (
    RequestTimes,
    TraceRequest,
    TraceSummary,
    all_at_once,
    poisson,
    summarize,
)
from farthing.errors import InvalidParameterError

Arrivals = Literal["all", "poisson"]
ARRIVALS: tuple[Arrivals, ...] = ("all", "poisson")
FIGURES = ("tokens_s", "first_token_mean", "first_token_p95", "latency_mean", "latency_p95")
"""What is compared, as :class:`TraceSummary` calls it."""


@dataclass(frozen=True, slots=True)
class System:
    """Something that answers requests. ``play`` plays a trace on it, begun anew each time."""

    name: str
    play: Callable[[Sequence[TraceRequest], Sequence[float]], tuple[list[RequestTimes], Record]]
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Played:
    """One system under one kind of arrivals: a summary a round."""

    system: System
    arrivals: Arrivals
    summaries: list[TraceSummary] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)  # requests a second that came
    extras: list[Record] = field(default_factory=list)  # what the system says of itself

    def spread(self, figure: str) -> Spread:
        """Of one of ``FIGURES``."""
        return Spread.of([getattr(summary, figure) for summary in self.summaries])

    def ratio(self, figure: str, other: Played) -> Spread:
        """Of the rounds' ratios to ``other``: what a round does to one it does to both."""
        pairs = zip(self.summaries, other.summaries, strict=True)
        return Spread.of([getattr(a, figure) / getattr(b, figure) for a, b in pairs])

    def record(self, facts: dict[str, Any], other: Played) -> Record:
        """The line that is kept; ``other`` is what it is compared with."""
        return {
            **head("requests"),
            "case": f"{self.system.name}, {self.arrivals}",
            "system": self.system.name,
            "arrivals": self.arrivals,
            "rounds": len(self.summaries),
            **({"requests_s": Spread.of(self.rates).as_json()} if self.rates else {}),
            **{figure: self.spread(figure).as_json() for figure in FIGURES},
            "compared_with": other.system.name,
            "ratios": {figure: self.ratio(figure, other).as_json() for figure in FIGURES},
            "runs": [
                summary.as_json() | extra
                for summary, extra in zip(self.summaries, self.extras, strict=True)
            ],
            **self.system.facts,
            **facts,
        }


def wanted_arrivals(text: str) -> list[Arrivals]:
    """The kinds named in ``text``; raises :class:`InvalidParameterError` for others."""
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in ARRIVALS:
            raise InvalidParameterError(
                f"--arrivals {text!r}: {name!r} must be one of {', '.join(ARRIVALS)}"
            )
    return [kind for kind in ARRIVALS if kind in names]


def play_rounds(
    systems: Sequence[System],
    trace: Sequence[TraceRequest],
    kinds: Sequence[Arrivals],
    *,
    rounds: int,
    rate: float | None,
    load: float,
    capacity_of: str,
    progress: Callable[[str], None],
) -> list[Played]:
    """Plays ``trace`` on each system once a round, one after the other.

    ``rate``: requests a second of the Poisson process; None: ``load`` times those that the system
    ``capacity_of`` answers when all come at once, which is measured in the same round. Its seed is
    the round's number: all systems get the same arrivals. ``progress`` is told what each run gave.
    """
    played = [Played(system, kind) for kind in kinds for system in systems]
    for number in range(rounds):
        capacity: float | None = None
        for kind in ARRIVALS:
            for system in systems:
                measured = kind == "all" and system.name == capacity_of
                needed = measured and rate is None and "poisson" in kinds
                if kind not in kinds and not needed:
                    continue
                if kind == "all":
                    times, extra = system.play(trace, all_at_once(len(trace)))
                    requests_s = None
                else:
                    requests_s = rate or load * (capacity or 1.0)
                    times, extra = system.play(trace, poisson(len(trace), requests_s, number))
                summary = summarize(times)
                if measured:
                    capacity = summary.requests_s
                progress(f"round {number + 1} of {rounds}, {kind}, {system.name}: {line(summary)}")
                for each in played:
                    if each.system is system and each.arrivals == kind:
                        each.summaries.append(summary)
                        each.extras.append(extra)
                        each.rates += [] if requests_s is None else [requests_s]
    return played


def line(summary: TraceSummary) -> str:
    """A run in one line."""
    return (
        f"{summary.tokens_s:.1f} tokens/s, first token {summary.first_token_mean:.2f} s "
        f"(p95 {summary.first_token_p95:.2f}), latency {summary.latency_mean:.2f} s "
        f"(p95 {summary.latency_p95:.2f})"
    )
