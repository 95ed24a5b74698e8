"""A matrix of a packed directory: its bytes lie in the file as kernels read them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from farthing.errors import ModelFormatError
from farthing.files.reader import FileReader


@dataclass(frozen=True, slots=True, eq=False)
class PackedTensor:
    """A matrix (outputs, inputs) in the packed layout of ``csrc/kernels/linear/layout.h``.

    Creating one reads nothing; who opened the file has checked that ``offset`` is a multiple of
    64, that the bytes lie inside the file and that they are as many as the layout has for the
    scheme and shape. Kernels refuse others.
    """

    name: str
    reader: FileReader
    shape: tuple[int, int]
    stored_dtype: str  # name of the scheme whose values it has
    dtype: str  # of the scheme of its bytes, which kernels compute with: the same or its carrier
    codebook: tuple[int, ...] | None  # 16 levels; None: the scheme's own, if it has one
    offset: int
    nbytes: int

    @property
    def file(self) -> Path:
        """The file that holds the matrix."""
        return self.reader.path

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.shape[0]

    @property
    def cols(self) -> int:
        """Elements of a row."""
        return self.shape[1]

    def mapped(self) -> npt.NDArray[np.uint8]:
        """The packed bytes where they lie in the mapped file, read-only; raises as the reader."""
        return self.reader.mapped()[self.offset : self.offset + self.nbytes]

    def read_into(self, start: int, out: npt.NDArray[np.uint8]) -> None:
        """Fills ``out`` with the packed bytes from ``start`` on; raises as the reader."""
        self.reader.read_into(self.offset + start, out)

    def refused(self, problem: str) -> ModelFormatError:
        """The error for bytes that are not a matrix of this scheme and shape."""
        return ModelFormatError(self.file, problem, field=f"tensor {self.name}", offset=self.offset)

    def not_finite(self, row: int, column: int) -> ModelFormatError:
        """The error for a NaN or an infinity at (row, column), or in the scales of its group."""
        return self.refused(
            f"the value or scale at row {row}, column {column} is a NaN or an infinity"
        )
