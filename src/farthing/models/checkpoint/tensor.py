"""A tensor in a model file: where its bytes are, and how to get rows of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from farthing.errors import InvalidParameterError, ModelFormatError
from farthing.files.reader import FileReader
from farthing.program.weights import decode_rows
from farthing.quantization import Scheme, scheme

_CONVERT_ELEMENTS = 1 << 18  # elements dequantized at a time: a few MB of temporaries
_BEYOND_FP16 = 65520  # the least that rounds to an infinity


@dataclass(frozen=True, slots=True, eq=False)
class TensorSource:
    """A tensor of a model file, row-major: ``shape`` is (outputs, inputs) for a matrix.

    Rows run along the last dimension: a vector is one row, a stack of matrices (n, outputs,
    inputs) has n * outputs. Creating one reads nothing; the reader of the file has checked that
    ``offset`` and ``nbytes`` lie inside it and fit shape and dtype.
    """

    name: str  # as in the file
    reader: FileReader
    shape: tuple[int, ...]
    stored_dtype: str  # scheme of the bytes in the file
    offset: int
    nbytes: int  # in the file
    row_order: npt.NDArray[np.intp] | None = None
    """Row i of the tensor is row ``row_order[i]`` of the file (elements, for a vector)."""
    plus: float = 0.0
    """Added to every element of a vector: norms that are stored as their distance from 1."""
    halved: bool = False
    """Codes that kernels serve are read as fp16 too; see :meth:`as_half`."""

    def as_half(self) -> TensorSource:
        """The same tensor, of ``dtype`` f16 if it is codes: times their scales, rounded once."""
        return self if self.stored.family == "dense" else replace(self, halved=True)

    def row_range(self, start: int, stop: int) -> TensorSource:
        """The matrix of rows start..stop, (stop - start, cols): a part of a stack of matrices.

        Raises :class:`InvalidParameterError` for rows that are not there, or in another order than
        the file's.
        """
        if not 0 <= start < stop <= self.rows or self.row_order is not None:
            raise InvalidParameterError(
                f"{self.name}: rows {start} to {stop} cannot be cut from {self.rows}"
            )
        row_bytes = self.stored.row_bytes(self.cols)
        return replace(
            self,
            shape=(stop - start, self.cols),
            offset=self.offset + start * row_bytes,
            nbytes=(stop - start) * row_bytes,
        )

    @property
    def file(self) -> Path:
        """The file that holds the tensor."""
        return self.reader.path

    @property
    def dtype(self) -> str:
        """Scheme of the rows that :meth:`read_rows` yields."""
        return self.stored_dtype if self.stored.served and not self.halved else "f16"

    @property
    def stored(self) -> Scheme:
        """The table's row for ``stored_dtype``."""
        return scheme(self.stored_dtype)

    @property
    def cols(self) -> int:
        """Elements of a row."""
        return self.shape[-1] if self.shape else 1

    @property
    def rows(self) -> int:
        """Number of rows."""
        return math.prod(self.shape[:-1])

    @property
    def row_nbytes(self) -> int:
        """Bytes of a row as :meth:`read_rows` yields it."""
        return scheme(self.dtype).row_bytes(self.cols)

    def read_rows(
        self, start: int, stop: int, out: npt.NDArray[np.uint8] | None = None
    ) -> npt.NDArray[np.uint8]:
        """Rows start..stop as bytes of ``dtype``, (stop - start, row_nbytes).

        ``out``, if given, is a contiguous buffer of exactly that many bytes; the rows are written
        there and a view of it is returned. Raises :class:`ModelFormatError` if the file has been
        cut, or if a row converted to fp16 has a value fp16 cannot hold.
        """
        if not 0 <= start <= stop <= self.rows:
            raise InvalidParameterError(
                f"{self.name}: rows {start} to {stop} are not within 0 to {self.rows}"
            )
        nbytes = (stop - start) * self.row_nbytes
        if out is None:
            out = np.empty(nbytes, np.uint8)
        elif out.dtype != np.uint8 or out.nbytes != nbytes or not out.flags.c_contiguous:
            raise InvalidParameterError(
                f"{self.name}: the buffer must be {nbytes} contiguous bytes, not {out.nbytes}"
            )
        rows = out.reshape(stop - start, self.row_nbytes)
        if self.dtype == self.stored_dtype:
            self._read_stored(start, stop, rows)
        else:
            self._read_converted(start, stop, rows)
        return rows

    def dequantize(self, start: int = 0, stop: int | None = None) -> npt.NDArray[np.float32]:
        """Rows start..stop as float32: exact for dense schemes, as ``gguf`` does for the others.

        The shape is ``shape`` for the whole tensor and (stop - start, cols) for a part. Values are
        those of the stored scheme, not of their fp16 conversion.
        """
        stop = self.rows if stop is None else stop
        if not 0 <= start <= stop <= self.rows:
            raise InvalidParameterError(
                f"{self.name}: rows {start} to {stop} are not within 0 to {self.rows}"
            )
        stored = np.empty((stop - start, self.stored.row_bytes(self.cols)), np.uint8)
        self._read_stored(start, stop, stored)
        values = _to_float32(stored, self.stored)
        if self.plus:
            values = values + np.float32(self.plus)
        return values.reshape(self.shape) if stop - start == self.rows else values

    def not_finite(self, row: int, column: int) -> ModelFormatError:
        """The error for a NaN or an infinity at (row, column), or in the scales of its block."""
        stored = self.stored
        what = "a scale of its block" if stored.scale_levels else "the value"
        return ModelFormatError(
            self.file,
            f"{what} at row {row}, column {column} is a NaN or an infinity",
            field=f"tensor {self.name}",
            offset=self._place(row, column),
        )

    def _place(self, row: int, column: int) -> int:
        """The byte of the file at which the block with (row, column) starts."""
        if self.row_order is not None:
            if len(self.shape) < 2:
                column = int(self.row_order[column])
            else:
                row = int(self.row_order[row])
        block = column // self.stored.block_cols * self.stored.block_bytes
        return self.offset + row * self.stored.row_bytes(self.cols) + block

    def _read_stored(self, start: int, stop: int, out: npt.NDArray[np.uint8]) -> None:
        """Fills ``out`` (rows, stored bytes of a row) in the tensor's row order."""
        row_bytes = out.shape[1]
        if self.row_order is None or start == stop:
            self.reader.read_into(self.offset + start * row_bytes, out)
            return
        if len(self.shape) < 2:
            element = self.stored.block_bytes
            self.reader.read_into(self.offset, out)
            out.reshape(-1, element)[:] = out.reshape(-1, element)[self.row_order]
            return
        order = self.row_order[start:stop]
        first, last = int(order.min()), int(order.max())
        span = np.empty((last + 1 - first, row_bytes), np.uint8)
        self.reader.read_into(self.offset + first * row_bytes, span)
        np.take(span, order - first, axis=0, out=out)

    def _read_converted(self, start: int, stop: int, out: npt.NDArray[np.uint8]) -> None:
        step = max(1, _CONVERT_ELEMENTS // max(1, self.cols))
        for row in range(start, stop, step):
            end = min(row + step, stop)
            values = self._decode(row, end)
            with np.errstate(over="ignore"):
                halves = values.astype(np.float16)
            if not np.abs(values).max(initial=0) < _BEYOND_FP16:  # a NaN neither
                bad, column = (int(i) for i in np.argwhere(~np.isfinite(halves))[0])
                raise ModelFormatError(
                    self.file,
                    f"{self.stored_dtype} value {values[bad, column]:g} at row {row + bad}, column "
                    f"{column} does not fit fp16, which this tensor is converted to",
                    field=f"tensor {self.name}",
                    offset=self._place(row + bad, column),
                )
            out[row - start : end - start] = halves.view(np.uint8)

    def _decode(self, start: int, stop: int) -> npt.NDArray[np.float32]:
        """What :meth:`dequantize` gives, (rows, cols), by kernels where they serve the scheme."""
        if self.stored.served:
            return decode_rows(replace(self, halved=False), start, stop)
        return self.dequantize(start, stop).reshape(stop - start, self.cols)


def _to_float32(rows: npt.NDArray[np.uint8], stored: Scheme) -> npt.NDArray[np.float32]:
    """(rows, row bytes) of a scheme to (rows, columns)."""
    if stored.name == "f32":
        return rows.view(np.float32)
    if stored.name == "f16":
        return rows.view(np.float16).astype(np.float32)
    if stored.name == "bf16":
        return (rows.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
    import gguf  # a third of a second, and only quantized files need it

    cols = rows.shape[1] // stored.block_bytes * stored.block_cols
    if rows.size == 0:
        return np.empty((rows.shape[0], cols), np.float32)
    with np.errstate(all="ignore"):  # what a hostile scale leads to is judged by who reads it
        values = gguf.dequantize(rows, gguf.GGMLQuantizationType[stored.name.upper()])
    return np.asarray(values, np.float32).reshape(rows.shape[0], cols)
