"""Everything ``farthing inspect`` measures, in the order in which one part needs another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, get_args

from farthing import machine
from farthing.errors import InsufficientMemoryError
from farthing.evaluation.inspection.anatomy import Anatomy, dissect
from farthing.evaluation.inspection.levels import SetAside, set_aside
from farthing.evaluation.inspection.matrices import Matrices, Matrix, find_matrices
from farthing.evaluation.inspection.outliers import (
    DimensionMaxima,
    PointOutliers,
    largest_point,
)
from farthing.evaluation.inspection.residuals import (
    PROMPT,
    Prompt,
    ResidualStream,
    encode_prompt,
)
from farthing.evaluation.inspection.weight_errors import (
    CHAPTER_SCHEMES,
    SchemeErrors,
    find_schemes,
    measure_errors,
    narrowest,
)
from farthing.models.checkpoint import Checkpoint, open_checkpoint
from farthing.models.registry import FAMILIES
from farthing.program.native import FloatMode
from farthing.quantization import Scheme
from farthing.quantization.rounding import RoundingMethod
from farthing.quantization.schemes import WHOLE_TENSOR

Part = Literal["errors", "anatomy", "outliers", "levels"]
PARTS: tuple[Part, ...] = get_args(Part)

SPARE_BYTES = 300 << 20
"""Of memory, beside a matrix: interpreter, libraries, chunks in work."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What is looked at, and how."""

    parts: frozenset[Part] = frozenset(PARTS)
    schemes: tuple[str, ...] = CHAPTER_SCHEMES
    method: RoundingMethod = "absmax"
    matrix: str | None = None  # for the anatomy; None: the worst of the narrowest scheme
    prompt: str = PROMPT
    num_threads: int | None = None


class Observer(Protocol):
    """Is told how far things are."""

    def rounding(self, done: int, total: int) -> None:
        """``done`` of ``total`` weights have been rounded to every scheme."""

    def loading(self, done: int, total: int) -> None:
        """``done`` of ``total`` bytes of the model's weights are in memory."""

    def reading(self, done: int, total: int) -> None:
        """``done`` of ``total`` tokens of the prompt have been through the model."""


@dataclass(frozen=True, slots=True)
class AnatomyFound:
    """One matrix, and why this one."""

    anatomy: Anatomy
    worst_of: str | None  # the scheme under which no matrix has a larger error; None: it was named


@dataclass(frozen=True, slots=True, eq=False)
class OutliersFound:
    """The residual stream at every point, the embeddings first, and what it was made of."""

    prompt: Prompt
    points: tuple[PointOutliers, ...]


@dataclass(frozen=True, slots=True, eq=False)
class LevelsFound:
    """The residual stream in INT8, where it is largest."""

    layer: int | None  # behind which it is read; None: the embeddings
    all_tokens: SetAside
    after_first: SetAside


@dataclass(frozen=True, slots=True, eq=False)
class Inspection:
    """What was found; None: not asked for."""

    checkpoint: Checkpoint
    matrices: Matrices
    errors: tuple[SchemeErrors, ...] | None = None
    anatomy: AnatomyFound | None = None
    outliers: OutliersFound | None = None
    levels: LevelsFound | None = None
    loaded_bytes: int = 0  # of weights in memory while the prompt ran


def inspect(path: Path, settings: Settings, observer: Observer) -> Inspection:
    """Looks at the model at ``path``: first its matrices, one in memory at a time, then a prompt.

    Raises :class:`InvalidParameterError` for a scheme, matrix or prompt that does not do before
    anything is measured, :class:`InsufficientMemoryError`, and what loading a model raises.
    """
    with FloatMode():
        checkpoint = open_checkpoint(path, FAMILIES)
    matrices = find_matrices(checkpoint)
    schemes = find_schemes(settings.schemes)
    named = None if settings.matrix is None else matrices.named(settings.matrix)
    runs = settings.parts & {"outliers", "levels"}
    prompt = encode_prompt(checkpoint, settings.prompt, "the prompt") if runs else None
    num_threads = settings.num_threads or machine.default_threads()

    if settings.parts & {"errors", "anatomy"}:
        _check_memory(checkpoint, matrices, schemes, settings.method, num_threads)

    def errors_of(chosen: tuple[Matrix, ...], under: Sequence[Scheme]) -> tuple[SchemeErrors, ...]:
        return measure_errors(chosen, under, settings.method, num_threads, observer.rounding)

    errors = errors_of(matrices.all, schemes) if "errors" in settings.parts else None
    anatomy = None
    if "anatomy" in settings.parts:
        worst_of = None
        if named is None:
            narrow = narrowest(schemes)
            worst_of = narrow.name
            known = errors or errors_of(matrices.layers, (narrow,))
            (found,) = (each for each in known if each.scheme == worst_of)
            named = matrices.named(found.worst[0])
        dissected = dissect(named.name, named.read(), schemes, settings.method)
        anatomy = AnatomyFound(dissected, worst_of)
    if prompt is None:
        return Inspection(checkpoint, matrices, errors, anatomy)

    stream = ResidualStream(
        path,
        prompt,
        checkpoint.config.num_layers,
        num_threads=settings.num_threads,
        progress=observer.loading,
    )
    points = stream.outliers(observer.reading)
    return Inspection(
        checkpoint,
        matrices,
        errors,
        anatomy,
        OutliersFound(prompt, points) if "outliers" in settings.parts else None,
        _levels(stream, points) if "levels" in settings.parts else None,
        stream.weight_bytes,
    )


def _levels(stream: ResidualStream, points: tuple[PointOutliers, ...]) -> LevelsFound:
    worst = largest_point(points)
    values = stream.values(worst.layer)

    def apart(maxima: DimensionMaxima) -> tuple[int, ...]:
        """The largest dimensions, of a narrow stream not all there are."""
        return tuple(o.dimension for o in maxima.top()[: values.shape[1] - 1])

    return LevelsFound(
        worst.layer,
        set_aside(values, apart(worst.all_tokens)),
        set_aside(values[1:], apart(worst.after_first)),
    )


def _check_memory(
    checkpoint: Checkpoint,
    matrices: Matrices,
    schemes: Sequence[Scheme],
    method: RoundingMethod,
    num_threads: int,
) -> None:
    """Of the largest matrix: its float32, and codes where a search looks at all of it at once."""
    largest = max(matrices.all, key=lambda matrix: matrix.size)
    searched = [s for s in schemes if s.group == WHOLE_TENSOR and method != "absmax"]
    needed = (4 + min(len(searched), num_threads)) * largest.size + SPARE_BYTES
    available = machine.memory_available()
    if needed > available:
        raise InsufficientMemoryError(
            f"{checkpoint.path}: rounding {largest.name}, its largest matrix, takes "
            f"{needed >> 20:,} MiB, {available >> 20:,} MiB are available; "
            "--only outliers,levels looks at no matrix"
        )
