"""How far rounding moves the matrices of a model, under many schemes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from farthing.errors import InvalidParameterError, ModelFormatError
from farthing.evaluation.inspection.matrices import Matrix
from farthing.quantization import SCHEME_ALIASES, SCHEMES, Scheme
from farthing.quantization.chunks import ArrayChunks
from farthing.quantization.error import matrix_error
from farthing.quantization.rounding import RoundingMethod
from farthing.quantization.schemes import WHOLE_TENSOR

CHAPTER_SCHEMES = (
    *("w8tensor", "w8row", "w8g128"),
    *("w4tensor", "w4row", "w4g128"),
    *("nf4g64", "w4g64"),
)
"""INT8 and INT4 in three granularities; NF4, and INT4 in its blocks, to tell the levels' part from
that of the blocks."""


@dataclass(frozen=True, slots=True)
class SchemeErrors:
    """Relative Frobenius errors ``|W - W'| / |W|`` under one scheme.

    ``mean``, ``median`` and ``worst`` are over the layers' matrices, each counting once.
    """

    scheme: str
    errors: Mapping[str, float]  # of the layers' matrices, by name
    apart: Mapping[str, float]  # of embedding and head
    weights: int  # of the layers' matrices
    nbytes: int  # that these take in the scheme, scales included

    @property
    def bits_per_weight(self) -> Fraction:
        """Exact."""
        return Fraction(8 * self.nbytes, self.weights)

    @property
    def mean(self) -> float:
        """Arithmetic."""
        return float(np.mean([*self.errors.values()]))

    @property
    def median(self) -> float:
        """Of an even number the middle of two."""
        return float(np.median([*self.errors.values()]))

    @property
    def worst(self) -> tuple[str, float]:
        """The matrix with the largest error, the first of equal ones, and the error."""
        return max(self.errors.items(), key=lambda item: item[1])


def find_schemes(names: Iterable[str]) -> tuple[Scheme, ...]:
    """The schemes called ``names``, in their order, each once.

    Raises :class:`InvalidParameterError` for one that weights cannot be rounded to.
    """
    found: dict[str, Scheme] = {}
    for name in names:
        row = SCHEMES.get(SCHEME_ALIASES.get(name, name))
        if row is None or not row.coded:
            problem = "no scheme is called" if row is None else "weights cannot be rounded to"
            coded = ", ".join(s.name for s in SCHEMES.values() if s.coded)
            raise InvalidParameterError(f"{problem} {name!r}; there are {coded}")
        found[row.name] = row
    if not found:
        raise InvalidParameterError("no scheme is named, such as w4g64")
    return tuple(found.values())


def narrowest(schemes: Sequence[Scheme]) -> Scheme:
    """Of those with one scale a matrix, or else of all, the one with the fewest bits."""
    per_tensor = [scheme for scheme in schemes if scheme.group == WHOLE_TENSOR]
    return min(per_tensor or schemes, key=lambda scheme: scheme.bits_per_weight)


def measure_errors(
    matrices: Sequence[Matrix],
    schemes: Sequence[Scheme],
    method: RoundingMethod,
    num_threads: int,
    progress: Callable[[int, int], None],
) -> tuple[SchemeErrors, ...]:
    """Rounds every matrix to every scheme, one matrix in memory at a time.

    The schemes of a matrix are shared among threads, so that their number changes no figure.
    ``progress(done, total)`` is told weights. Raises :class:`ModelFormatError` for a weight that is
    not finite, or too large for a scale of a scheme.
    """
    found: dict[str, dict[Matrix, float]] = {scheme.name: {} for scheme in schemes}
    done, total = 0, sum(matrix.size for matrix in matrices)
    progress(done, total)
    stopped = threading.Event()
    with ThreadPoolExecutor(num_threads) as threads:
        try:
            for matrix in matrices:
                values = _Chunks(matrix.read(), stopped)
                jobs = [
                    threads.submit(_error, matrix, values, scheme, method) for scheme in schemes
                ]
                for scheme, job in zip(schemes, jobs, strict=True):
                    found[scheme.name][matrix] = job.result()
                del values, jobs  # before the next is read
                done += matrix.size
                progress(done, total)
        except BaseException:
            stopped.set()
            threads.shutdown(cancel_futures=True)
            raise
    layers = [matrix for matrix in matrices if not matrix.apart]
    return tuple(
        SchemeErrors(
            scheme.name,
            {m.name: error for m, error in found[scheme.name].items() if not m.apart},
            {m.name: error for m, error in found[scheme.name].items() if m.apart},
            sum(matrix.size for matrix in layers),
            sum(scheme.matrix_bytes(*matrix.shape) for matrix in layers),
        )
        for scheme in schemes
    )


def _error(matrix: Matrix, values: _Chunks, scheme: Scheme, method: RoundingMethod) -> float:
    try:
        return matrix_error(values, scheme, method).relative
    except InvalidParameterError as error:
        raise ModelFormatError(
            matrix.source.file, f"{scheme.name}: {error}", field=f"tensor {matrix.name}"
        ) from None


class _Chunks:
    """A matrix in memory whose readers can be stopped between two chunks."""

    def __init__(self, values: NDArray[np.float32], stopped: threading.Event) -> None:
        self._chunks = ArrayChunks(values)
        self._stopped = stopped

    def __iter__(self) -> Iterator[NDArray[np.float32]]:
        for chunk in self._chunks:
            if self._stopped.is_set():
                raise InterruptedError
            yield chunk

    def whole(self) -> NDArray[np.float32]:
        return self._chunks.whole()
