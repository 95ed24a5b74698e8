"""How far a rounded unit is from its own floats, by what it gives out.

The kernels that will serve it multiply the inputs that it has in the model, so that what rounding
those to int8 adds is part of the error. A sample of its rows tells: schemes are compared on the
same ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from functools import partial

import numpy as np
from numpy.typing import NDArray

from farthing.errors import InvalidParameterError
from farthing.mixed.units import Unit
from farthing.models.checkpoint import TensorSource
from farthing.packing.plan import KEEP
from farthing.program.builder import ProgramBuilder
from farthing.program.native import FloatMode, KvCache, NativeExecutor
from farthing.program.ops import Program, WeightSlot
from farthing.program.step import SequenceRows, step_batch
from farthing.program.weights import (
    NativeMatrix,
    decode_rows,
    new_matrix,
    pack_quantized,
)
from farthing.quantization import SCHEMES
from farthing.quantization.rounding import RoundingMethod, round_weights

FloatArray = NDArray[np.float32]

_BLOCK_ROWS = 16  # neighbours, which the kernels' layout interleaves
_BLOCKS = 8  # spread over a matrix
_EXPERTS = 4  # of those that share a scheme
_INPUTS = 64  # made up where those of the model are not known

_STATES = "inputs"
_FLOATS = "floats"


def output_errors(
    unit: Unit,
    sources: Mapping[str, TensorSource],
    inputs: FloatArray | None,
    tokens: NDArray[np.int32],
    schemes: Sequence[str],
    method: RoundingMethod,
    threads: Executor,
) -> dict[str, float]:
    """The mean squared error of an output of ``unit`` under each scheme.

    ``inputs`` (n, cols) are what it multiplies; if None, numbers of a normal distribution stand for
    them. A table that is only looked up is judged by its rows for ``tokens``. The error is infinite
    where the weights have no place in the scheme.
    """
    names = dict.fromkeys(schemes)
    if not unit.multiplied:
        rows = [(int(t), int(t) + 1) for t in np.unique(tokens)]
        return _sample_errors(sources[unit.name], rows, None, list(names), method, threads)
    totals = dict.fromkeys(names, 0.0)
    step = max(1, len(unit.weights) // _EXPERTS)
    for weight in unit.weights[::step][:_EXPERTS]:
        source = sources[weight]
        x = _made_up(source.cols) if inputs is None else inputs
        found = _sample_errors(source, _spread(source.rows), x, list(names), method, threads)
        for scheme, error in found.items():
            totals[scheme] += error
    return totals


def _sample_errors(
    source: TensorSource,
    rows: Sequence[tuple[int, int]],
    x: FloatArray | None,
    schemes: Sequence[str],
    method: RoundingMethod,
    threads: Executor,
) -> dict[str, float]:
    values = np.concatenate([decode_rows(source, *part) for part in rows])
    matrices = dict(
        zip(
            schemes,
            threads.map(partial(_rounded, source, rows, values, method), schemes),
            strict=True,
        )
    )
    fitting = {scheme: matrix for scheme, matrix in matrices.items() if matrix is not None}
    outputs = _outputs(values, fitting, x)
    truth = outputs.pop(_FLOATS).astype(np.float64)
    errors = dict.fromkeys(schemes, float("inf"))
    for scheme, found in outputs.items():
        errors[scheme] = float(np.square(found - truth).mean())
    return errors


def _rounded(
    source: TensorSource,
    rows: Sequence[tuple[int, int]],
    values: FloatArray,
    method: RoundingMethod,
    scheme: str,
) -> NativeMatrix | None:
    """The rows in ``scheme``, one under the other; None if it has no place for them."""
    name = source.dtype if scheme == KEEP else scheme
    with FloatMode():
        if name == source.dtype:
            matrix = new_matrix(name, *values.shape)
            matrix.pack(0, np.concatenate([source.read_rows(*part) for part in rows]))
            return matrix
        if SCHEMES[name].scale_levels == 0:
            with np.errstate(over="ignore"):
                dense = values.astype({"f16": np.float16, "f32": np.float32}[name])
            if not np.isfinite(dense).all():
                return None
            matrix = new_matrix(name, *values.shape)
            matrix.pack(0, dense.view(np.uint8))
            return matrix
        try:
            return pack_quantized(round_weights(values, SCHEMES[name], method))
        except InvalidParameterError:  # a scale beyond fp16
            return None


def _outputs(
    values: FloatArray, matrices: Mapping[str, NativeMatrix], x: FloatArray | None
) -> dict[str, FloatArray]:
    """What each matrix makes of ``x``, (n, rows), the floats among them; without, its rows."""
    if x is None:
        count = len(values)
        return {_FLOATS: values} | {s: m.dequantize(0, count) for s, m in matrices.items()}
    floats, table = new_matrix("f32", *values.shape), new_matrix("f32", *x.shape)
    for matrix, data in ((floats, values), (table, x)):
        matrix.pack(0, np.ascontiguousarray(data).view(np.uint8))
    every = {_FLOATS: floats, **matrices}
    program = _stack(x.shape, values.shape, list(every))
    executor = NativeExecutor(program, {**every, _STATES: table}, num_threads=1, max_rows=len(x))
    batch = step_batch([SequenceRows(range(len(x)), 0, range(-(-len(x) // 16)), logits=len(x))])
    kv = KvCache(  # a pass wants one, in which this stores nothing
        dtype="fp16", num_layers=1, num_kv_heads=1, head_dim=16, num_blocks=-(-len(x) // 16)
    )
    output = executor.run(batch, kv).logits
    return dict(zip(every, np.split(output, len(every), axis=1), strict=True))


def _stack(inputs: tuple[int, ...], shape: tuple[int, ...], names: Sequence[str]) -> Program:
    p = ProgramBuilder()
    x = p.logit_rows(p.embed(WeightSlot(_STATES, inputs)))
    return p.finish(p.linear(x, *(WeightSlot(name, shape) for name in names)))


def _spread(rows: int) -> list[tuple[int, int]]:
    """Blocks of rows at equal distances."""
    blocks = -(-rows // _BLOCK_ROWS)
    step = max(1, blocks // _BLOCKS)
    starts = range(0, rows, step * _BLOCK_ROWS)[:_BLOCKS]
    return [(start, min(start + _BLOCK_ROWS, rows)) for start in starts]


def _made_up(cols: int) -> FloatArray:
    return np.random.default_rng(0).standard_normal((_INPUTS, cols), np.float32)
