"""Cases and the machine's limits, measured in turns; shares of the limits, round by round."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from farthing.bench.limits import Limits, Rates, combine
from farthing.program.work import Work

ENOUGH_SECONDS = 0.03
"""A case that is quicker is run several times a round, of which the median counts."""

MOST_REPEATS = 7

Part = Literal["pass", "linear", "attention", "llm"]
"""What a case's time covers: a whole pass of the executor, its matrix products or its attention
alone, or a token through ``LLM``."""


@dataclass(frozen=True, slots=True)
class Case:
    """One thing to measure. ``run`` does it once and returns the seconds it took."""

    name: str
    part: Part
    work: Work
    tokens: int  # of one run
    run: Callable[[], float]
    settings: dict[str, object] = field(default_factory=dict)  # for the record


@dataclass(frozen=True, slots=True)
class Spread:
    """Of all rounds."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Of one value a round."""
        return cls(statistics.median(values), min(values), max(values))

    def as_json(self) -> dict[str, float]:
        """As one level of a record."""
        return {"median": self.median, "least": self.least, "most": self.most}


@dataclass(frozen=True, slots=True)
class Measurement:
    """A case, its seconds, and its shares: the time its limit allows by the time it took.

    ``memory_share``: its bytes at the read bandwidth of the same round. ``compute_share``: its
    multiply-adds, each kind at the rate of the fastest loop. The greater of the two binds: no
    time can be less than what either needs.
    """

    case: Case
    rounds: int
    seconds: Spread
    memory_share: Spread
    compute_share: Spread
    rates: Rates  # medians over the rounds

    @property
    def binding(self) -> Literal["memory", "compute"]:
        """The limit that binds."""
        by_memory = self.memory_share.median >= self.compute_share.median
        return "memory" if by_memory else "compute"

    @property
    def share(self) -> Spread:
        """Of the limit that binds."""
        return self.memory_share if self.binding == "memory" else self.compute_share


def shares(work: Work, seconds: float, rates: Rates) -> tuple[float, float]:
    """Memory and compute share of ``work`` done in ``seconds`` where ``rates`` are possible."""
    memory = work.total_bytes / (rates.read * 1e9)
    compute = work.integer_macs / (rates.best_integer[1] * 1e9)
    compute += work.float_macs / (rates.best_floating[1] * 1e9)
    return memory / seconds, compute / seconds


def measure(
    cases: Sequence[Case],
    limits: Limits,
    rounds: int,
    progress: Callable[[str], None] | None = None,
) -> list[Measurement]:
    """Runs every case once a round, after a round that does not count.

    The limits are probed before and after each round; the mean of the two is the round's.
    ``progress`` is told what comes next.
    """
    for case in cases:
        if progress is not None:
            progress(f"warming up: {case.name}")
        case.run()
    seconds: list[list[float]] = [[] for _ in cases]
    probes = [limits.probe()]
    for number in range(rounds):
        for case, times in zip(cases, seconds, strict=True):
            if progress is not None:
                progress(f"round {number + 1} of {rounds}: {case.name}")
            times.append(_once(case))
        probes.append(limits.probe())
    of_rounds = [combine(pair, "mean") for pair in pairwise(probes)]
    return [
        _measurement(case, times, of_rounds) for case, times in zip(cases, seconds, strict=True)
    ]


def _measurement(case: Case, seconds: Sequence[float], rates: Sequence[Rates]) -> Measurement:
    pairs = [shares(case.work, s, r) for s, r in zip(seconds, rates, strict=True)]
    return Measurement(
        case,
        len(seconds),
        Spread.of(seconds),
        Spread.of([memory for memory, _ in pairs]),
        Spread.of([compute for _, compute in pairs]),
        combine(rates),
    )


def _once(case: Case) -> float:
    times: list[float] = []
    end = time.perf_counter() + ENOUGH_SECONDS
    while not times or (len(times) < MOST_REPEATS and time.perf_counter() < end):
        times.append(case.run())
    return statistics.median(times)
