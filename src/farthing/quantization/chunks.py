"""A matrix some rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

_CHUNK_ELEMENTS = 1 << 20  # a few MB of floats and codes
_ROW_BLOCK = 16  # rows that packed layouts interleave


def row_chunks(rows: int, cols: int) -> Iterator[tuple[int, int]]:
    """(start, stop) of chunks of whole row blocks.

    Sums over a matrix are added in this order, so that they do not depend on who computes them.
    """
    step = max(1, _CHUNK_ELEMENTS // cols // _ROW_BLOCK) * _ROW_BLOCK
    for start in range(0, rows, step):
        yield start, min(start + step, rows)


class Chunks(Protocol):
    """Finite float32 weights (rows, cols), in memory or not, to be gone through more than once."""

    def __iter__(self) -> Iterator[npt.NDArray[np.float32]]:
        """The rows of each of :func:`row_chunks`."""

    def whole(self) -> npt.NDArray[np.float32]:
        """All of it."""


@dataclass(frozen=True, slots=True)
class ArrayChunks:
    """Those of an array."""

    values: npt.NDArray[np.float32]

    def __iter__(self) -> Iterator[npt.NDArray[np.float32]]:
        rows, cols = self.values.shape
        return (self.values[start:stop] for start, stop in row_chunks(rows, cols))

    def whole(self) -> npt.NDArray[np.float32]:
        """The array."""
        return self.values
