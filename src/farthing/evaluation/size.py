"""What a model takes in files and in memory."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from farthing.engine.model_loader import LoadedModel
from farthing.models.checkpoint import Checkpoint
from farthing.program.ops import Program
from farthing.quantization import scheme


@dataclass(frozen=True, slots=True)
class Size:
    """Bytes, and bits a weight."""

    files: int  # that hold the weights
    weights: int  # in memory, packed
    bits_per_weight: float
    """Of the matrices, by the table of schemes: codes, scales and minimums. What the packed layout
    fills up, and what a carrier takes more than the scheme it carries, is in ``weights``."""


def size_of(loaded: LoadedModel) -> Size:
    """The size of a loaded model."""
    executor = loaded.runner.executor
    files = {tensor.file for tensor in loaded.checkpoint.tensors.values()}
    return Size(
        sum(path.stat().st_size for path in files),
        sum(weight.nbytes for weight in executor.weights.values()),
        float(_bits_per_weight(loaded.checkpoint, executor.program)),
    )


def _bits_per_weight(checkpoint: Checkpoint, program: Program) -> Fraction:
    """Exact, of all matrices of the program together."""
    packed = {} if checkpoint.manifest is None else checkpoint.manifest.matrices
    bits = count = 0
    for slot in program.weights:
        if len(slot.shape) < 2:
            continue
        matrix = checkpoint.tensors[slot.name]
        entry = packed.get(slot.name)
        own = scheme((entry and entry.carries) or matrix.dtype)
        bits += 8 * own.matrix_bytes(matrix.rows, matrix.cols)
        count += matrix.rows * matrix.cols
    return Fraction(bits, count)
