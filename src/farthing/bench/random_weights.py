"""Random weights straight in the kernels' layouts, for programs that only have a shape."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from farthing import _native
from farthing.errors import InvalidParameterError
from farthing.program.ops import Program
from farthing.program.weights import NativeWeight
from farthing.quantization.schemes import SCHEME_ALIASES, SCHEMES, Scheme, scheme

_ROW_BLOCK = 16
_CHUNK_BYTES = 2 << 20

_Packer = Callable[[_native.Matrix, int, int], None]
"""Puts the first rows there are into a matrix: at which row, and how many."""

_SCALES: Mapping[str, tuple[tuple[int, float], ...]] = MappingProxyType(
    {  # fp16 numbers in a block of random bytes: where, and times a weight's standard deviation
        "q4_0": ((0, 0.22),),
        "q4_1": ((0, 0.22), (2, -1.6)),
        "q5_0": ((0, 0.11),),
        "q5_1": ((0, 0.11), (2, -1.7)),
        "q8_0": ((0, 0.0135),),
        "q4_k": ((0, 0.0039), (2, 0.029)),
        "q5_k": ((0, 0.0019), (2, 0.029)),
        "q6_k": ((208, 0.0007),),
        "iq4_nl": ((0, 0.0146),),
    }
)


def served_schemes() -> tuple[str, ...]:
    """Schemes that random matrices can be made in; those that kernels have."""
    native = {row["name"] for row in _native.schemes()}
    return tuple(name for name, row in SCHEMES.items() if name in native and _can_make(row))


def served_scheme(name: str) -> Scheme:
    """The row of the scheme called ``name``, also by an alias.

    Raises :class:`InvalidParameterError`.
    """
    names = served_schemes()
    if SCHEME_ALIASES.get(name, name) not in names:
        raise InvalidParameterError(
            f"--scheme {name!r}: must be one of {', '.join((*names, *SCHEME_ALIASES))}"
        )
    return scheme(name)


def _can_make(row: Scheme) -> bool:
    return row.family == "dense" or row.name in _SCALES or row.gguf_type is None


def packed_bytes(row: Scheme, rows: int, cols: int) -> int:
    """Bytes of a packed matrix.

    Raises :class:`InvalidParameterError` when a row does not fill whole blocks of columns.
    """
    return -(-rows // _ROW_BLOCK) * _row_block_bytes(row, cols)


@cache
def _row_block_bytes(row: Scheme, cols: int) -> int:
    row.row_bytes(cols)  # refuses
    return _native.Matrix(row.name, _ROW_BLOCK, cols).nbytes


def float_matrix(values: NDArray[np.float32]) -> _native.Matrix:
    """``values`` (rows, cols) as they are."""
    matrix = _native.Matrix("f32", *values.shape)
    matrix.pack(0, values.view(np.uint8))
    return matrix


class RandomMatrices:
    """Makes matrices of random codes; two of one scheme and width have the same rows.

    Weights have mean zero, about, and a standard deviation of ``1 / sqrt(cols)``: values keep their
    size from layer to layer. No kernel's time depends on them.
    """

    def __init__(self, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)
        self._rows: dict[tuple[str, int], tuple[int, _Packer]] = {}

    def make(self, row: Scheme, rows: int, cols: int) -> _native.Matrix:
        """A matrix (rows, cols). Raises :class:`InvalidParameterError` for a width it cannot be."""
        key = (row.name, cols)
        if key not in self._rows:
            count = max(_CHUNK_BYTES // row.row_bytes(cols) // _ROW_BLOCK, 1) * _ROW_BLOCK
            self._rows[key] = (count, self._random_rows(row, count, cols))
        count, pack = self._rows[key]
        matrix = _native.Matrix(row.name, rows, cols)
        for first in range(0, rows, count):
            pack(matrix, first, min(count, rows - first))
        return matrix

    def _random_rows(self, row: Scheme, rows: int, cols: int) -> _Packer:
        deviation = 1 / math.sqrt(cols)
        if row.gguf_type is None:
            return self._random_codes(row, rows, cols, deviation)
        if row.family == "dense":
            values = self._rng.standard_normal((rows, cols), np.float32) * np.float32(deviation)
            stored = _dense(row, values).view(np.uint8).reshape(rows, -1)
        else:
            blocks = self._rng.integers(
                0, 256, (rows, cols // row.block_cols, row.block_bytes), dtype=np.uint8
            )
            for offset, factor in _SCALES[row.name]:
                number = np.array([factor * deviation], np.float16).view(np.uint8)
                blocks[:, :, offset : offset + 2] = number
            stored = blocks.reshape(rows, -1)

        def pack(matrix: _native.Matrix, first: int, count: int) -> None:
            matrix.pack(first, stored[:count])

        return pack

    def _random_codes(self, row: Scheme, rows: int, cols: int, deviation: float) -> _Packer:
        """Rows of a scheme that no file has: codes, and a scale and minimum for all."""
        assert row.code_bits is not None
        levels = np.arange(1 << row.code_bits, dtype=np.float64) - row.zero
        if row.codebook is not None:
            levels = np.array(row.codebook, np.float64)
        scale = deviation / levels.std()
        codes = self._rng.integers(0, len(levels), (rows, cols), dtype=np.uint8)
        groups = (rows, row.groups(cols))
        scales = np.full(groups, scale, np.float16).view(np.uint16)
        minimums = None
        if row.minimum:
            minimums = np.full(groups, -scale * levels.mean(), np.float16).view(np.uint16)

        def pack(matrix: _native.Matrix, first: int, count: int) -> None:
            below = None if minimums is None else minimums[:count]
            matrix.pack_codes(first, codes[:count], scales[:count], below)

        return pack


def _dense(row: Scheme, values: NDArray[np.float32]) -> NDArray[np.generic]:
    if row.name == "bf16":
        return (values.view(np.uint32) >> 16).astype(np.uint16)
    return values.astype({"f16": np.float16, "f32": np.float32}[row.name])


def weights_bytes(program: Program, row: Scheme) -> int:
    """Bytes of all weights of ``program`` with every matrix in the scheme of ``row``."""
    return sum(
        packed_bytes(row, *slot.shape) if len(slot.shape) == 2 else 4 * slot.shape[0]
        for slot in program.weights
    )


def random_weights(program: Program, row: Scheme, num_threads: int) -> dict[str, NativeWeight]:
    """Every weight of ``program``: matrices in the scheme of ``row``, norms 1, biases small.

    Raises :class:`InvalidParameterError` when a matrix cannot be in that scheme.
    """
    weights: dict[str, NativeWeight] = {}
    matrices = RandomMatrices()
    with ThreadPoolExecutor(num_threads) as threads:
        for slot in program.weights:
            if len(slot.shape) == 2:
                continue
            values = np.ones(slot.shape, np.float32)
            weights[slot.name] = values * np.float32(0.01 if slot.name.endswith("bias") else 1)
        names = [slot for slot in program.weights if len(slot.shape) == 2]
        for shape in {slot.shape[1] for slot in names}:  # rows are drawn before threads share them
            matrices.make(row, 1, shape)
        made = threads.map(lambda slot: matrices.make(row, *slot.shape), names)
        weights.update(zip((slot.name for slot in names), made, strict=True))
    return weights
