"""What is compared with what, and models packed for as long as they are measured."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from farthing.errors import DiskFullError, FarthingError, InvalidParameterError
from farthing.models.checkpoint import Checkpoint, check_tensors
from farthing.models.registry import build_program
from farthing.packing.plan import KEEP, find_target, plan
from farthing.packing.quantize import PackOptions, PackProgress, quantize_model
from farthing.program.native import FloatMode
from farthing.quantization import SCHEME_ALIASES, SCHEMES
from farthing.quantization.rounding import RoundingMethod

LADDER = ("w8row", "w6g64", "w5g64", "w4g32", "w4g64", "nf4g64", "w4g128")
"""Schemes among which :mod:`farthing.evaluation.recommendation` looks if nobody names others."""

REFERENCE = "reference"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model to measure."""

    name: str
    path: Path  # of its files, or of those it is packed from
    scheme: str | None = None  # that it is packed in; None: its files are used as they are
    half: bool = False  # codes of its files are loaded as fp16

    @classmethod
    def of_files(cls, path: Path) -> Self:
        """The model at ``path``, called by the last part of it, but never as a reference is."""
        whole = Path(os.path.abspath(path))  # noqa: PTH100 - links stay as they are
        name = whole.name if whole.name != REFERENCE else f"{whole.parent.name}/{whole.name}"
        return cls(name, path)


def of_schemes(model: Checkpoint, schemes: Sequence[str]) -> list[Candidate]:
    """The model in each of ``schemes``.

    Raises :class:`InvalidParameterError` for a scheme that weights cannot be packed in and one
    named twice, :class:`UnsupportedOperationError` for a model that is packed already, and
    :class:`ModelFormatError` for one that lacks a weight.
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
    check_tensors(model, program.weights)
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
        return Candidate(REFERENCE, model.path)
    with FloatMode():
        model.as_half(build_program(model.config))
    return Candidate(REFERENCE, model.path, half=True)


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

    What is packed is removed at the end, so errors of it, those of the body too, name the model and
    the scheme in its place. ``note`` is told how large it is before it is written, ``told`` of
    bytes that are, and of all.
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
    except DiskFullError as error:
        raise FarthingError(
            f"{scratch.parent}: packing {candidate.name}: {error.problem}; set TMPDIR to another "
            "folder"
        ) from error
    except FarthingError as error:
        told_of = str(error)
        for place in (target.resolve(), target):
            told_of = told_of.replace(str(place), f"{candidate.path} in {candidate.scheme}")
        if told_of == str(error):
            raise
        raise FarthingError(told_of) from error
    finally:
        shutil.rmtree(target, ignore_errors=True)
