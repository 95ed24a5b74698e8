"""``farthing quantize --mixed``: the choice of schemes, and what is said of it."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from farthing.cli.step_bar import StepBar
from farthing.cli.terminal import human_bytes

if TYPE_CHECKING:
    from farthing.cli.loading import LoadBar
    from farthing.mixed.choose import CalibrationText, Choice, Measured
    from farthing.mixed.harm import Progress as HarmProgress
    from farthing.packing.quantize import PackOptions


class Mixture:
    """What ``--mixed`` asks for and, once chosen, what came of it."""

    def __init__(self, size: str, calibration: Path | None) -> None:
        from farthing.cli.sizes import parse_bytes

        self.label = "".join(size.split())
        self._budget = parse_bytes(size, "--mixed")
        self._calibration = _read_calibration(calibration)
        self._choice: Choice | None = None

    @classmethod
    def asked(
        cls,
        size: str | None,
        calibration: Path | None,
        scheme: str | None,
        head_scheme: str | None,
    ) -> Self | None:
        """None where there is no ``--mixed``.

        Raises InvalidParameterError and ``OSError`` for options that do not go together, a size
        that is none and a text that cannot be read.
        """
        from farthing.errors import InvalidParameterError

        if size is None:
            if calibration is not None:
                raise InvalidParameterError("--calibration: only --mixed BYTES measures on a text")
            return None
        for option, value in (("--scheme", scheme), ("--head-scheme", head_scheme)):
            if value is not None:
                raise InvalidParameterError(
                    f"--mixed and {option} {value}: --mixed chooses the schemes; give one of them"
                )
        return cls(size, calibration)

    def choose(self, path: Path, options: PackOptions) -> PackOptions:
        """Measures the model at ``path`` and chooses, with bars on stderr."""
        from farthing.cli.download import cache_folder
        from farthing.cli.terminal import dim
        from farthing.mixed.choose import choose
        from farthing.packing.plan import KEEP

        bar = MixedBar(path.name)
        try:
            choice = choose(
                path,
                self._budget,
                self._calibration,
                options.method,
                num_threads=options.num_threads,
                keep=cache_folder() / "harms",
                observer=bar,
            )
        except KeyboardInterrupt:
            bar.finish()
            bar.explain()
            raise
        finally:
            bar.finish()
        self._choice = choice
        if choice.floats:
            dim("All of it fits as floats, so nothing is measured and nothing rounded")
        return replace(
            options,
            scheme=KEEP,
            schemes=choice.taken.candidate.schemes,
            calibration=None if choice.floats else self._calibration.note,
        )

    def facts(self) -> dict[str, Any]:
        """What ``--json`` says. Divergences are means over the calibration text, nats a token."""
        assert self._choice is not None
        choice, uniform = self._choice, self._choice.uniform
        return {
            "budget": self._budget,
            "calibration": asdict(self._calibration.note),
            "schemes": dict(choice.taken.candidate.schemes),
            **_figures(choice.taken),
            "uniform_taken": choice.is_uniform,
            "mixture": _figures(choice.mixed),
            "uniform": None if uniform is None else {"scheme": uniform[0], **_figures(uniform[1])},
        }

    def lines(self) -> list[str]:
        """What people are told."""
        from farthing.packing.plan import KEEP

        assert self._choice is not None
        choice, taken = self._choice, self._choice.taken
        counts = Counter(taken.candidate.schemes.values()).most_common()
        lines = [
            "Matrices: "
            + ", ".join(
                f"{count} as they were" if scheme == KEEP else f"{count} in {scheme}"
                for scheme, count in counts
            )
        ]
        if choice.floats:
            return lines
        lines.append(
            f"Divergence on {self._calibration.name}: {taken.divergence:.4g} nats a token, "
            f"{taken.candidate.predicted:.4g} predicted"
        )
        if choice.uniform is None:
            lines.append("No single scheme fits this size")
        elif choice.is_uniform:
            lines.append(f"A single scheme is taken: the mixture had {choice.mixed.divergence:.4g}")
        else:
            scheme, uniform = choice.uniform
            lines.append(
                f"The best single scheme that fits, {scheme}: {uniform.divergence:.4g} in "
                f"{human_bytes(uniform.candidate.nbytes)}"
            )
        return lines


def _read_calibration(file: Path | None) -> CalibrationText:
    from farthing.evaluation.text import read_text
    from farthing.mixed.choose import CalibrationText
    from farthing.texts import calibration_text

    if file is not None:
        name = "".join(c if c.isprintable() else "?" for c in file.name)
        return CalibrationText(name[:255], read_text(file))
    text = calibration_text()
    return CalibrationText(text.name, text.text)


def _figures(found: Measured) -> dict[str, Any]:
    candidate = found.candidate
    return {
        "tensor_bytes": candidate.nbytes,
        "predicted_kl": candidate.predicted,
        "measured_kl": found.divergence,
    }


class MixedBar:
    """An observer of the choice: bars on a terminal; elsewhere a line for each tenth."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loading: LoadBar | None = None
        self._bar = StepBar()
        self._what = ""
        self._tenth = 0
        self._units: tuple[int, int] | None = None

    def loading(self, done: int, total: int) -> None:
        """The model comes as floats."""
        from farthing.cli.loading import LoadBar

        if self._loading is None:
            self._loading = LoadBar(self._name)
        self._loading.advance(done, total)

    def known(self, units: int, total: int) -> None:
        """Says what an earlier run has measured."""
        from farthing.cli.terminal import dim

        dim(f"An earlier run has measured {units} of {total} matrices")
        self._units = units, total

    def measured(self, progress: HarmProgress) -> None:
        """Another matrix is measured."""
        self._units = progress.units, progress.of_units
        self._show(
            "Measuring matrices",
            f", {progress.units} of {progress.of_units}",
            progress.share,
        )

    def checking(self, what: str, share: float) -> None:
        """What was chosen is measured as a whole."""
        self._show(f"Measuring {what} as a whole", "", share)

    def explain(self) -> None:
        """Says what an interrupted run has kept."""
        from farthing.cli.terminal import dim

        if self._units is not None:
            units, total = self._units
            dim(
                f"Interrupted: {units} of {total} matrices are measured and kept; the same command "
                "goes on from there, another size too"
            )

    def finish(self) -> None:
        """Takes the bars away."""
        if self._loading is not None:
            self._loading.finish()
            self._loading = None
        self._bar.finish()

    def _show(self, what: str, count: str, share: float) -> None:
        from farthing.cli.terminal import dim

        if what != self._what:
            self.finish()
            self._what, self._tenth = what, 0
        if sys.stderr.isatty():
            self._bar.advance(what + count, round(1000 * share), 1000)
        elif int(share * 10) > self._tenth:
            self._tenth = int(share * 10)
            dim(f"{what}{count}: {share:.0%}")
