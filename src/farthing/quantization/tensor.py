"""A quantized matrix: codes, scales and what belongs to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from farthing.errors import InvalidParameterError
from farthing.quantization.schemes import Scheme
from farthing.quantization.schemes import scheme as find_scheme


@dataclass(frozen=True, slots=True, eq=False)
class QuantizedTensor:
    """A matrix (rows, cols) in a scheme of codes with one level of scales.

    A weight is ``scale * (code - zero)``; with minimums ``scale * code + minimum``; with a codebook
    ``scale * codebook[code]``. ``zero`` is the table's (``Scheme.zero``). Scales and minimums have
    the shape ``Scheme.scale_shape``: (rows, groups), or (1, 1) where the matrix has one.

    Raises :class:`InvalidParameterError` naming the array when shapes, types or codes do not fit
    the scheme, or a scale or minimum is a NaN or an infinity.
    """

    scheme: str
    codes: npt.NDArray[np.uint8]  # (rows, cols), below 2^bits
    scales: npt.NDArray[np.float16]  # (rows, groups)
    minimums: npt.NDArray[np.float16] | None = None  # the same
    codebook: npt.NDArray[np.int8] | None = None  # (16,); None: the scheme's own, if it has one

    def __post_init__(self) -> None:
        row = self.row
        if not isinstance(self.codes, np.ndarray):
            raise InvalidParameterError(f"codes must be an array, not {type(self.codes).__name__}")
        if not row.coded:
            raise InvalidParameterError(
                f"scheme {self.scheme!r} is not codes with one level of scales"
            )
        shape = self.codes.shape
        if len(shape) != 2 or 0 in shape:
            raise InvalidParameterError(f"codes must be a matrix, not of shape {shape}")
        groups = row.scale_shape(*shape)
        self._expect("codes", self.codes, np.uint8, shape)
        self._expect("scales", self.scales, np.float16, groups)
        if row.minimum != (self.minimums is not None):
            raise InvalidParameterError(
                f"{self.scheme} {'needs' if row.minimum else 'has no'} minimums"
            )
        if self.minimums is not None:
            self._expect("minimums", self.minimums, np.float16, groups)
        if self.codebook is None:
            if row.codebook_learnt:
                raise InvalidParameterError(f"{self.scheme} needs a codebook")
        else:
            if not row.has_codebook:
                raise InvalidParameterError(f"{self.scheme} has no codebook")
            self._expect("codebook", self.codebook, np.int8, (16,))
        assert row.code_bits is not None
        if int(self.codes.max()) >> row.code_bits:
            raise InvalidParameterError(
                f"{self.scheme} has codes of 0 to {2**row.code_bits - 1}, got {self.codes.max()}"
            )
        for name, values in (("scales", self.scales), ("minimums", self.minimums)):
            if values is not None and not np.isfinite(values).all():
                at = tuple(int(i) for i in np.argwhere(~np.isfinite(values))[0])
                raise InvalidParameterError(f"{name} at {at} is {values[at]}, not a finite number")

    def _expect(
        self, name: str, array: npt.NDArray[Any], dtype: npt.DTypeLike, shape: tuple[int, ...]
    ) -> None:
        if not isinstance(array, np.ndarray):
            raise InvalidParameterError(
                f"{name} of {self.scheme} must be an array, not {type(array).__name__}"
            )
        if array.dtype != dtype or array.shape != shape:
            raise InvalidParameterError(
                f"{name} of {self.scheme} must be {np.dtype(dtype)} {shape}, not {array.dtype} "
                f"{array.shape}"
            )

    @property
    def row(self) -> Scheme:
        """The table's row for ``scheme``."""
        return find_scheme(self.scheme)

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, cols)."""
        rows, cols = self.codes.shape
        return rows, cols

    @property
    def bits_per_weight(self) -> float:
        """Bits a weight takes, scales, minimums and a codebook of its own included."""
        return float(self.row.bits(*self.shape))

    @property
    def levels(self) -> npt.NDArray[np.float32]:
        """What each code stands for before it is scaled (2^bits)."""
        row = self.row
        assert row.code_bits is not None
        if row.has_codebook:
            codebook = row.codebook if self.codebook is None else self.codebook
            return np.asarray(codebook, np.float32)
        return np.arange(1 << row.code_bits, dtype=np.float32) - np.float32(row.zero)

    def dequantize(self) -> npt.NDArray[np.float32]:
        """The weights as float32 (rows, cols), bit for bit what kernels serve."""
        row, cols = self.row, self.codes.shape[1]

        def spread(values: npt.NDArray[np.float16]) -> npt.NDArray[np.float32]:
            """One value a group to one a column."""
            wide = values.astype(np.float32)
            return wide if row.group <= 0 else np.repeat(wide, row.group, axis=1)[:, :cols]

        values = self.levels[self.codes] * spread(self.scales)
        return values if self.minimums is None else values + spread(self.minimums)
