"""Choices of schemes for tiny models."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from farthing.mixed.choose import CalibrationText, Choice, choose
from farthing.mixed.harm import Progress
from farthing.texts import calibration_text

TEXT = CalibrationText("a novel", calibration_text().text[:20_000])


@dataclass
class Recorder:
    """An observer that remembers, and stops a run after some units if it is told to."""

    stop_after: int | None = None
    known_units: int = 0
    units: list[Progress] = field(default_factory=list)
    checked: list[str] = field(default_factory=list)
    loaded: int = 0

    def loading(self, done: int, total: int) -> None:
        self.loaded = done

    def known(self, units: int, total: int) -> None:
        self.known_units = units

    def measured(self, progress: Progress) -> None:
        self.units.append(progress)
        if len(self.units) == self.stop_after:
            raise KeyboardInterrupt

    def checking(self, what: str, share: float) -> None:
        if what not in self.checked:
            self.checked.append(what)


def chosen(
    model: Path, budget: int, keep: Path, observer: Recorder | None = None, threads: int = 2
) -> Choice:
    """The choice for a tiny model."""
    return choose(
        model,
        budget,
        TEXT,
        "weighted",
        num_threads=threads,
        keep=keep,
        observer=observer or Recorder(),
    )
