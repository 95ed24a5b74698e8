"""The weight matrices of a model, read one at a time."""

from __future__ import annotations

import difflib
import math
from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from farthing.errors import InvalidParameterError
from farthing.models.checkpoint import Checkpoint, check_tensors
from farthing.models.checkpoint.checkpoint import AnyTensor
from farthing.models.registry import build_program
from farthing.program.native import FloatMode
from farthing.program.weights import decode_rows
from farthing.quantization import SCHEMES

CHUNK_ELEMENTS = 1 << 20
"""Weights that are worked on at a time."""

_LAYERS = "model.layers."


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix (outputs, inputs) and where it lies."""

    name: str
    source: AnyTensor
    apart: bool  # embedding or head, which is in no mean over the layers' matrices

    @property
    def shape(self) -> tuple[int, int]:
        """(outputs, inputs)."""
        rows, cols = self.source.shape
        return rows, cols

    @property
    def size(self) -> int:
        """Weights."""
        return math.prod(self.source.shape)

    def read(self) -> NDArray[np.float32]:
        """All of it, the values that kernels serve.

        Raises :class:`ModelFormatError` for a weight that is not finite.
        """
        rows, cols = self.shape
        values = np.empty((rows, cols), np.float32)
        step = max(1, CHUNK_ELEMENTS // cols)
        for start in range(0, rows, step):
            stop = min(start + step, rows)
            with FloatMode():
                values[start:stop] = decode_rows(self.source, start, stop)
        return values


@dataclass(frozen=True, slots=True)
class Matrices:
    """Those of one model, in the order its program asks for them."""

    layers: tuple[Matrix, ...]  # every projection of every layer
    apart: tuple[Matrix, ...]  # embedding and head, which may be one matrix
    routers: int  # matrices that choose experts: decided in floats, never rounded, not in here

    @property
    def all(self) -> tuple[Matrix, ...]:
        """The layers' first."""
        return (*self.layers, *self.apart)

    @property
    def largest_bytes(self) -> int:
        """Of the largest of them, as float32."""
        return 4 * max(matrix.size for matrix in self.all)

    def stored(self) -> dict[str, int]:
        """How many are stored in which scheme, most first."""
        return dict(Counter(matrix.source.stored_dtype for matrix in self.all).most_common())

    @property
    def dequantized(self) -> bool:
        """Whether weights of some are what is left of others that were rounded before."""
        return any(SCHEMES[matrix.source.stored_dtype].family != "dense" for matrix in self.all)

    def named(self, name: str) -> Matrix:
        """The matrix called ``name``, also by its :func:`short_name`.

        Raises :class:`InvalidParameterError` with the nearest names.
        """
        by_name = {short_name(matrix.name): matrix for matrix in self.all}
        found = by_name.get(short_name(name))
        if found is not None:
            return found
        near = difflib.get_close_matches(short_name(name), by_name, 3, 0.3) or [next(iter(by_name))]
        raise InvalidParameterError(
            f"no matrix of this model is called {name!r}; its {len(by_name)} are named like "
            f"{', '.join(near)}"
        )


def short_name(name: str) -> str:
    """``layers.3.mlp.down_proj`` of ``model.layers.3.mlp.down_proj.weight``."""
    return name.removeprefix("model.").removesuffix(".weight")


def find_matrices(checkpoint: Checkpoint) -> Matrices:
    """The matrices of ``checkpoint``, of which nothing is read yet.

    Raises :class:`ModelFormatError` where one is missing or has another shape.
    """
    program = build_program(checkpoint.config)
    check_tensors(checkpoint, program.weights)
    found = [
        Matrix(slot.name, checkpoint.tensors[slot.name], not slot.name.startswith(_LAYERS))
        for slot in program.weights
        if len(slot.shape) == 2 and slot.name not in program.routers
    ]
    return Matrices(
        tuple(matrix for matrix in found if not matrix.apart),
        tuple(matrix for matrix in found if matrix.apart),
        len(program.routers),
    )
