"""From a model, a size and a text to the schemes that do the least harm."""

from __future__ import annotations

import hashlib
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from farthing import machine
from farthing.errors import ContextLengthError, InvalidParameterError
from farthing.evaluation.text import cut_windows, encode_text
from farthing.mixed.candidates import LADDER, Candidate, Candidates
from farthing.mixed.float_model import UNSCORED, FloatModel
from farthing.mixed.harm import PROBE, Harm, Progress, measure_harms, measure_whole
from farthing.mixed.journal import Journal
from farthing.mixed.units import Unit, find_units
from farthing.models.checkpoint import Checkpoint, check_tensors, open_checkpoint
from farthing.models.checkpoint.checkpoint import tokenizer_of
from farthing.models.checkpoint.packed_manifest import Calibration
from farthing.models.registry import FAMILIES, build_program
from farthing.packing.plan import KEEP, plan
from farthing.program.native import FloatMode
from farthing.program.numerics import NUMERICS_VERSION
from farthing.quantization.rounding import RoundingMethod
from farthing.version import installed_version

WINDOWS = 4
"""Pieces of the text, spread over it."""

WINDOW_TOKENS = 64


@dataclass(frozen=True, slots=True)
class CalibrationText:
    """What harm is measured on."""

    name: str
    text: str

    @property
    def note(self) -> Calibration:
        """What a packed directory says of it."""
        return Calibration("mixed", self.name, hashlib.sha256(self.text.encode()).hexdigest())


@dataclass(frozen=True, slots=True)
class Measured:
    """A way to store the model, and the mean divergence that it has, nats a token."""

    candidate: Candidate
    divergence: float


@dataclass(frozen=True, slots=True)
class Choice:
    """What is to be packed: ``mixed``, unless the best single scheme that fits did better."""

    mixed: Measured
    uniform: tuple[str, Measured] | None  # None: no single scheme fits, or nothing was measured
    floats: bool = False  # everything fits as floats; nothing was measured

    @property
    def is_uniform(self) -> bool:
        """Whether a single scheme did better."""
        return self.uniform is not None and self.uniform[1].divergence < self.mixed.divergence

    @property
    def taken(self) -> Measured:
        """What does the least harm."""
        return self.uniform[1] if self.uniform is not None and self.is_uniform else self.mixed


class Observer(Protocol):
    """Is told how far things are."""

    def loading(self, done: int, total: int) -> None:
        """``done`` of ``total`` bytes of the model are in memory as floats."""

    def known(self, units: int, total: int) -> None:
        """``units`` of ``total`` were measured by an earlier run."""

    def measured(self, progress: Progress) -> None:
        """Another unit has been measured, and is kept."""

    def checking(self, what: str, share: float) -> None:
        """``share`` of the matrices have been rounded as chosen, to measure all together."""


def choose(
    source: Path,
    budget: int,
    calibration: CalibrationText,
    method: RoundingMethod,
    *,
    num_threads: int | None,
    keep: Path,
    observer: Observer,
) -> Choice:
    """The schemes for the model at ``source`` with at most ``budget`` bytes of tensors.

    What is measured is kept in the folder ``keep``, where a later run finds it. Raises
    :class:`InvalidParameterError` for a size below the smallest and a text too short,
    :class:`UnsupportedOperationError` for a model that is packed already, and what loading raises.
    """
    with FloatMode():
        checkpoint = open_checkpoint(source, FAMILIES)
        config = checkpoint.config
        program = build_program(config, context_length=config.context_length)
    check_tensors(checkpoint, program.weights)
    work = plan(checkpoint, program, KEEP, None)
    candidates = Candidates(program, work)
    candidates.check(budget)
    floats = candidates.floats()
    if floats.nbytes <= budget:
        return Choice(Measured(floats, 0.0), None, floats=True)
    sources = {m.name: m.source for m in work.matrices}
    windows = _windows(checkpoint, calibration)
    journal = Journal(keep, _settings(checkpoint, windows, method))
    with ExitStack() as stack:

        @cache
        def model() -> FloatModel:
            threads = num_threads or machine.default_threads()
            return stack.enter_context(
                FloatModel(
                    checkpoint, program, windows, num_threads=threads, progress=observer.loading
                )
            )

        def found(unit: Unit, harm: Harm, progress: Progress) -> None:
            journal.add_harm(unit.name, harm)
            observer.measured(progress)

        def measured(what: str, candidate: Candidate) -> Measured:
            divergence = journal.divergence(candidate.schemes)
            if divergence is None:
                divergence = measure_whole(
                    model(),
                    sources,
                    candidate.schemes,
                    method,
                    lambda share: observer.checking(what, share),
                )
                journal.add_divergence(candidate.schemes, divergence)
            return Measured(candidate, divergence)

        units = find_units(program)
        if journal.harms:
            observer.known(len(journal.harms), len(units))
        if any(unit.name not in journal.harms for unit in units):
            measure_harms(model(), sources, LADDER, method, known={**journal.harms}, found=found)
        mixed = measured("the mixture", candidates.best(budget, journal.harms))
        uniform = candidates.best_uniform(budget, journal.harms)
        if uniform is None:
            return Choice(mixed, None)
        scheme, candidate = uniform
        return Choice(mixed, (scheme, measured(scheme, candidate)))


def _windows(checkpoint: Checkpoint, calibration: CalibrationText) -> NDArray[np.int32]:
    """(windows, tokens + 1), at equal distances."""
    if checkpoint.config.context_length < WINDOW_TOKENS:
        raise ContextLengthError(
            f"{checkpoint.path}: its context of {checkpoint.config.context_length} tokens is "
            f"shorter than the {WINDOW_TOKENS} that harm is measured on"
        )
    tokenizer = tokenizer_of(checkpoint)
    ids = encode_text(tokenizer, calibration.text)
    needed = WINDOWS * (WINDOW_TOKENS + 1)
    if len(ids) < needed:
        raise InvalidParameterError(
            f"{calibration.name}: {len(ids)} tokens are too few to measure harm on; "
            f"{needed} are needed"
        )
    windows = cut_windows(
        ids, tokenizer.beginning, context=WINDOW_TOKENS + 1, limit=None, what=calibration.name
    ).tokens
    last = len(windows) - 1
    return windows[[last * i // (WINDOWS - 1) for i in range(WINDOWS)]]


def _settings(
    checkpoint: Checkpoint, windows: NDArray[np.int32], method: RoundingMethod
) -> dict[str, object]:
    """All that a measurement depends on. Of the text and the tokenizer that is the windows."""
    files = dict.fromkeys(tensor.file for tensor in checkpoint.tensors.values())
    if checkpoint.path.is_dir():
        files[checkpoint.path / "config.json"] = None
    return {
        "files": [[str(f.resolve()), f.stat().st_size, f.stat().st_mtime_ns] for f in files],
        "windows": [*windows.shape, hashlib.sha256(windows.astype("<i4").tobytes()).hexdigest()],
        "unscored": UNSCORED,
        "method": method,
        "probe": PROBE,
        "schemes": LADDER,
        "numerics": NUMERICS_VERSION,
        "tool": installed_version(),
    }
