"""What has been measured of a model, kept for the next run: another size, or after Ctrl-C."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from farthing.mixed.harm import PROBE, Harm


class Journal:
    """A file of lines: what was measured, under which settings, then a figure each.

    ``settings`` are all that the figures depend on; they give the file its name in ``folder``. A
    line that was cut short, or is none of ours, is passed over. Raises ``OSError`` naming the file
    where it cannot be read or written.
    """

    def __init__(self, folder: Path, settings: Mapping[str, object]) -> None:
        head = json.dumps(settings, sort_keys=True)
        self.path = folder / f"{hashlib.sha256(head.encode()).hexdigest()[:32]}.jsonl"
        self.harms: dict[str, Harm] = {}
        self.divergences: dict[str, float] = {}
        folder.mkdir(parents=True, exist_ok=True)
        try:
            text = self.path.read_text(errors="replace")
        except FileNotFoundError:
            text = ""
        first, _, rest = text.partition("\n")
        if first != head:
            self._write(head + "\n", "w")
            return
        for line in rest.splitlines():
            self._read(line)
        if not text.endswith("\n"):
            self._write("\n")

    def add_harm(self, unit: str, harm: Harm) -> None:
        """Notes what a unit does."""
        self.harms[unit] = harm
        self._write(json.dumps(["harm", unit, harm.probed, dict(harm.errors)]) + "\n")

    def add_divergence(self, schemes: Mapping[str, str], divergence: float) -> None:
        """Notes what all units in these ``schemes`` do together."""
        self.divergences[_digest(schemes)] = divergence
        self._write(json.dumps(["divergence", _digest(schemes), divergence]) + "\n")

    def divergence(self, schemes: Mapping[str, str]) -> float | None:
        """What was noted of these."""
        return self.divergences.get(_digest(schemes))

    def _read(self, line: str) -> None:
        try:
            match json.loads(line):
                case ["harm", str(unit), float(probed), dict(errors)]:
                    values = {str(scheme): float(error) for scheme, error in errors.items()}
                    errors_can_be = all(error >= 0 for error in values.values())  # inf: no place
                    if errors_can_be and math.isfinite(values[PROBE]) and math.isfinite(probed):
                        self.harms[unit] = Harm(probed, values)
                case ["divergence", str(schemes), float(divergence)] if math.isfinite(divergence):
                    self.divergences[schemes] = divergence
        except (KeyError, ValueError, TypeError, RecursionError):
            return

    def _write(self, text: str, mode: Literal["a", "w"] = "a") -> None:
        try:
            with self.path.open(mode) as file:
                file.write(text)
        except OSError as error:  # that of a write does not name the file
            raise OSError(error.errno, error.strerror, str(self.path)) from error


def _digest(schemes: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(sorted(schemes.items())).encode()).hexdigest()
