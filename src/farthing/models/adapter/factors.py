"""The two factors of low-rank updates as weights that the executors read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from farthing.errors import ModelFormatError
from farthing.models.checkpoint.tensor import TensorSource
from farthing.quantization import scheme


@dataclass(frozen=True, slots=True, eq=False)
class InputFactor:
    """A of a pair, (rank, inputs), with the bytes of the file; refused if not finite."""

    tensor: TensorSource

    @property
    def shape(self) -> tuple[int, ...]:
        """(rank, inputs)."""
        return self.tensor.shape

    @property
    def dtype(self) -> str:
        """Scheme of the rows."""
        return self.tensor.dtype

    @property
    def rows(self) -> int:
        """The rank."""
        return self.tensor.rows

    @property
    def row_nbytes(self) -> int:
        """Bytes of a row as read."""
        return self.tensor.row_nbytes

    def read_rows(self, start: int, stop: int) -> npt.NDArray[np.uint8]:
        """Rows start..stop, (stop - start, row_nbytes). Raises :class:`ModelFormatError`."""
        self.dequantize(start, stop)
        return self.tensor.read_rows(start, stop)

    def dequantize(self, start: int = 0, stop: int | None = None) -> npt.NDArray[np.float32]:
        """Rows start..stop as float32, (rows, inputs). Raises :class:`ModelFormatError`."""
        values = self.tensor.dequantize(start, stop)
        if bad := _first_not_finite(values):
            raise self.not_finite(start + bad[0], bad[1])
        return values

    def not_finite(self, row: int, column: int) -> ModelFormatError:
        """The error for a NaN or an infinity at (row, column)."""
        return _error(self.tensor, f"the value {_at(row, column)} is a NaN or an infinity")


@dataclass(frozen=True, slots=True, eq=False)
class FactorPart:
    """Rows of the B of a pair, from ``first_row``, that stand at ``first_col`` of a factor."""

    tensor: TensorSource  # (outputs, rank)
    first_row: int
    first_col: int
    scale: float


@dataclass(frozen=True, slots=True, eq=False)
class OutputFactor:
    """B of all pairs that add to one weight, side by side, times their scales.

    ``shape`` is (outputs of the weight, ranks of all pairs of its operation): the columns of pairs
    that add to other weights only are 0. Values are scaled in float64 and rounded once.
    """

    shape: tuple[int, int]
    parts: Sequence[FactorPart]

    @property
    def dtype(self) -> str:
        """The type of the file where scaling loses nothing in it, else ``f32``."""
        stored = {part.tensor.stored_dtype for part in self.parts}
        if stored == {"f16"} and all(part.scale == 1 for part in self.parts):
            return "f16"
        if stored == {"bf16"} and all(_power_of_two(part.scale) for part in self.parts):
            return "bf16"
        return "f32" if stored else "f16"  # all zeros where no pair adds

    @property
    def rows(self) -> int:
        """Outputs."""
        return self.shape[0]

    @property
    def row_nbytes(self) -> int:
        """Bytes of a row as read."""
        return scheme(self.dtype).row_bytes(self.shape[1])

    def read_rows(self, start: int, stop: int) -> npt.NDArray[np.uint8]:
        """Rows start..stop, (stop - start, row_nbytes). Raises :class:`ModelFormatError`."""
        values = self.dequantize(start, stop)
        if self.dtype == "f16":
            return values.astype(np.float16).view(np.uint8)
        if self.dtype == "bf16":
            return (values.view(np.uint32) >> np.uint32(16)).astype(np.uint16).view(np.uint8)
        return values.view(np.uint8)

    def dequantize(self, start: int = 0, stop: int | None = None) -> npt.NDArray[np.float32]:
        """Rows start..stop as float32, (rows, ranks). Raises :class:`ModelFormatError`."""
        stop = self.rows if stop is None else stop
        values = np.zeros((stop - start, self.shape[1]), np.float32)
        for part in self.parts:
            first, rank = part.first_row, part.tensor.cols
            rows = part.tensor.dequantize(first + start, first + stop).astype(np.float64)
            with np.errstate(over="ignore", invalid="ignore"):  # is refused
                values[:, part.first_col : part.first_col + rank] = rows * part.scale
        if bad := _first_not_finite(values):
            raise self.not_finite(start + bad[0], bad[1])
        return values

    def not_finite(self, row: int, column: int) -> ModelFormatError:
        """The error for a NaN or an infinity at (row, column)."""
        part = next(p for p in self.parts if 0 <= column - p.first_col < p.tensor.cols)
        row, column = row + part.first_row, column - part.first_col
        stored = part.tensor.dequantize(row, row + 1).reshape(-1)[column]
        problem = "is a NaN or an infinity"
        if np.isfinite(stored):
            problem = f"is {stored:g}, which times the scale {part.scale:g} does not fit float32"
        return _error(part.tensor, f"the value {_at(row, column)} {problem}")


def _power_of_two(scale: float) -> bool:
    return abs(math.frexp(scale)[0]) == 0.5


def _first_not_finite(values: npt.NDArray[np.float32]) -> tuple[int, int] | None:
    """Row and column of the first NaN or infinity."""
    finite = np.isfinite(values)
    if finite.all():
        return None
    row, column = np.argwhere(~finite)[0]
    return int(row), int(column)


def _at(row: int, column: int) -> str:
    return f"at row {row}, column {column}"


def _error(tensor: TensorSource, problem: str) -> ModelFormatError:
    return ModelFormatError(
        tensor.file, problem, field=f"tensor {tensor.name}", offset=tensor.offset
    )
