"""What is compared with what, and models packed for as long as they are measured."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from farthing.errors import InvalidParameterError
from farthing.models.checkpoint import Checkpoint
from farthing.models.registry import build_program
from farthing.packing.plan import KEEP, find_target, plan
from farthing.packing.quantize import PackOptions, PackProgress, quantize_model
from farthing.program.native import FloatMode
from farthing.quantization import SCHEME_ALIASES, SCHEMES
from farthing.quantization.rounding import RoundingMethod

LADDER = ("w8row", "w6g64", "w5g64", "w4g32", "w4g64", "nf4g64", "w4g128")
"""Schemes among which :mod:`farthing.evaluation.recommendation` looks if nobody names others."""

HALF = "f16"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model to measure."""

    name: str
    path: Path  # of its files, or of those it is packed from
    scheme: str | None = None  # that it is packed in; None: its files are used as they are


def split_schemes(names: str) -> tuple[str, ...]:
    """Names that commas part. Raises :class:`InvalidParameterError` where there are none."""
    found = tuple(name for part in names.split(",") if (name := part.strip()))
    if not found:
        raise InvalidParameterError(f"--schemes {names!r} names no scheme")
    return found


def of_schemes(model: Checkpoint, schemes: Sequence[str]) -> list[Candidate]:
    """The model in each of ``schemes``.

    Raises :class:`InvalidParameterError` for a scheme that weights cannot be packed in and one
    named twice, :class:`UnsupportedOperationError` for a model that is packed already.
    """
    found: dict[str, Candidate] = {}
    for name in schemes:
        find_target(name)
        own = SCHEME_ALIASES.get(name, name)
        if own in found:
            raise InvalidParameterError(f"--schemes names {name} twice; once is enough")
        found[own] = Candidate(name, model.path, None if name == KEEP else name)
    with FloatMode():
        program = build_program(model.config)
    for name in set(found) - {KEEP}:
        plan(model, program, name, None)
    return list(found.values())


def as_reference(model: Checkpoint) -> Candidate:
    """The most exact model there is without another file: the values of its own as they are.

    Floats are taken as they are; codes as fp16, in which the codes times their scales are rounded
    once. Raises :class:`UnsupportedOperationError` for a model that is packed, whose values only
    its kernels know.
    """
    if all(SCHEMES[t.stored_dtype].family == "dense" for t in model.tensors.values()):
        return Candidate("reference", model.path)
    with FloatMode():
        plan(model, build_program(model.config), HALF, None)
    return Candidate("reference", model.path, HALF)


@contextlib.contextmanager
def ready(
    candidate: Candidate,
    scratch: Path,
    *,
    method: RoundingMethod,
    num_threads: int | None,
    note: Callable[[str], None],
    told: Callable[[int, int], None],
) -> Iterator[Path]:
    """The path of the candidate's files, packed into ``scratch`` first where it has to be.

    What is packed is removed at the end. ``note`` is told how large it is before it is written,
    ``told`` of bytes that are, and of all.
    """
    if candidate.scheme is None:
        yield candidate.path
        return
    target = scratch / f"{candidate.name}-{candidate.scheme}"

    def bytes_done(done: int, total: int) -> None:
        if done == 0:
            note(
                f"{candidate.name} takes {total / 2**20:,.0f} MiB of disk in {scratch.parent} "
                "until it has been measured"
            )
        told(done, total)

    try:
        quantize_model(
            candidate.path,
            target,
            PackOptions(candidate.scheme, method, num_threads=num_threads),
            PackProgress(bytes=bytes_done),
        )
        yield target
    finally:
        shutil.rmtree(target, ignore_errors=True)
