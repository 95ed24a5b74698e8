"""Matrices of the native executor, from codes and scales."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from farthing import _native


class QuantizedMatrix(Protocol):
    """Codes and scales, as ``quantization.QuantizedTensor`` has and checks them."""

    @property
    def scheme(self) -> str: ...
    @property
    def codes(self) -> NDArray[np.uint8]: ...
    @property
    def scales(self) -> NDArray[np.float16]: ...
    @property
    def minimums(self) -> NDArray[np.float16] | None: ...
    @property
    def codebook(self) -> NDArray[np.int8] | None: ...


def pack_quantized(tensor: QuantizedMatrix) -> _native.Matrix:
    """The matrix of ``tensor`` in the kernels' layout, codes and scales as they are."""
    rows, cols = tensor.codes.shape
    codebook = None if tensor.codebook is None else np.ascontiguousarray(tensor.codebook)
    matrix = _native.Matrix(tensor.scheme, rows, cols, codebook)

    def bits(halves: NDArray[np.float16]) -> NDArray[np.uint16]:
        return np.ascontiguousarray(halves).view(np.uint16)

    minimums = None if tensor.minimums is None else bits(tensor.minimums)
    matrix.pack_codes(0, np.ascontiguousarray(tensor.codes), bits(tensor.scales), minimums)
    return matrix
