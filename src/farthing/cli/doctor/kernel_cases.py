"""Inputs on which kernels are compared: random, with outliers, denormals, zeros and odd sizes.

The instruction set is an argument of every case, so that one case runs with each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from farthing import _native
from farthing.program.kv_types import KV_DTYPES, KV_SIDES, KvDtype

Floats = npt.NDArray[np.float32]
Results = tuple[npt.NDArray[Any], ...]

# Odd, and on both sides of every vector width.
WIDTHS = (1, 2, 7, 15, 16, 17, 31, 33, 64, 129, 896)
# (rows of the matrix, rows of the activations)
SHAPES = ((1, 1), (17, 2), (33, 3), (16, 8), (40, 21), (24, 270))
# Byte offsets of the fp16 scales and minimums in a block; everything else in it is codes.
HALF_FIELDS = {
    "q4_0": (0,),
    "q4_1": (0, 2),
    "q5_0": (0,),
    "q5_1": (0, 2),
    "q8_0": (0,),
    "iq4_nl": (0,),
    "q4_k": (0, 2),
    "q5_k": (0, 2),
    "q6_k": (208,),
}
_BLOCK_TOKENS = 16


@dataclass(frozen=True, slots=True)
class KernelCase:
    """One kernel on one input: ``call(isa, *arguments)`` gives an output or a tuple of them."""

    kernel: str
    input: str
    call: Callable[..., Any]
    arguments: tuple[Any, ...]

    def run(self, isa: str) -> Results:
        """All outputs of the kernel of that instruction set."""
        outputs = self.call(isa, *self.arguments)
        return tuple(map(np.asarray, outputs if isinstance(outputs, tuple) else (outputs,)))


def kernel_cases() -> Iterator[KernelCase]:
    """Every kernel the native module offers, on every kind of input."""
    yield from linear_cases()
    yield from elementwise_cases()
    yield from expert_cases()
    yield from attention_cases()
    yield from sampling_cases()
    yield from function_cases()
    yield from rounding_cases()


def awkward(rng: np.random.Generator, *shape: int) -> Floats:
    """Normal values, one in eight an outlier, a denormal, a zero of either sign or a power of 2."""
    values = rng.standard_normal(shape).astype(np.float32)
    kind = rng.integers(0, 40, shape)
    values[kind == 0] *= 3e4
    values[kind == 1] *= np.float32(1e-42)
    values[kind == 2] = 0.0
    values[kind == 3] = -0.0
    powers = np.ldexp(np.float32(1), rng.integers(-20, 12, shape).astype(np.int32))
    values[kind == 4] = powers[kind == 4].astype(np.float32)
    return values


# --- Linear -------------------------------------------------------------------------------------


def linear_cases() -> Iterator[KernelCase]:
    """Matrix products and dequantization of every scheme, quantization of every group size."""
    groups: set[int] = set()
    for number, scheme in enumerate(_native.schemes()):
        groups |= {scheme["activation_group"]} - {0}
        yield from _scheme_cases(number, scheme)
    for group in sorted(groups):
        rng = np.random.default_rng(group)
        for cols in (group, 3 * group, 6 * group + 5):
            x = awkward(rng, 5, cols)
            x[1] = 0.0
            x[2] *= np.float32(1e-38)
            kernel = f"quantize rows, groups of {group}"
            yield KernelCase(kernel, f"{x.shape}", _quantized, (x, group))


def _scheme_cases(number: int, scheme: dict[str, Any]) -> Iterator[KernelCase]:
    name = scheme["name"]
    for cols in _widths(scheme):
        for rows, tokens in SHAPES:
            rng = np.random.default_rng((number, cols, rows, tokens))
            matrix = random_matrix(rng, scheme, rows, cols)
            x = awkward(rng, tokens, matrix.cols)
            bias = awkward(rng, rows) if rows % 2 else None
            add = awkward(rng, tokens, rows) if tokens % 2 else None
            label = f"({tokens}, {matrix.cols}) x ({rows}, {matrix.cols})"
            yield KernelCase(f"linear {name}", label, _product, (matrix, x, bias, add))
        label = f"({matrix.rows}, {matrix.cols})"
        yield KernelCase(f"dequantize {name}", label, _dequantized, (matrix,))


def _widths(scheme: dict[str, Any]) -> tuple[int, ...]:
    """Columns of the matrices: whole blocks of a checkpoint, any number elsewhere."""
    block = scheme["block_cols"]
    if block == 0:
        return 1, 3 * scheme["activation_group"] + 5, 608
    return (1, 37, 300) if block == 1 else (block, 3 * block, 608 // block * block)


def _product(
    isa: str, matrix: _native.Matrix, x: Floats, bias: Floats | None, add: Floats | None
) -> Any:
    return _native.linear(matrix, x, isa, bias=bias, add=add)


def _dequantized(isa: str, matrix: _native.Matrix) -> Any:
    return matrix.dequantize(0, matrix.rows, isa)


def _quantized(isa: str, x: Floats, group: int) -> Any:
    return _native.quantize_rows(x, group, isa)


def random_matrix(
    rng: np.random.Generator, scheme: dict[str, Any], rows: int, cols: int
) -> _native.Matrix:
    """A matrix of one of the schemes of the native table: any codes, finite scales."""
    matrix = _native.Matrix(scheme["name"], rows, cols)
    if scheme["block_cols"]:
        matrix.pack(0, random_blocks(rng, scheme, rows * cols // scheme["block_cols"]).reshape(-1))
        return matrix
    groups = -(-cols // scheme["group"]) if scheme["group"] else 1
    codes = rng.integers(0, 1 << scheme["bits"], (rows, cols), np.uint8)
    minimums = _random_halves(rng, rows, groups) if scheme["minimum"] else None
    matrix.pack_codes(0, codes, _random_halves(rng, rows, groups), minimums)
    return matrix


def _random_halves(rng: np.random.Generator, *shape: int) -> npt.NDArray[np.uint16]:
    """Bits of finite fp16 numbers from denormal to large."""
    scale = rng.choice([-1.0, 1.0], shape) * np.exp2(rng.uniform(-24, 2, shape))
    return scale.astype(np.float16).view(np.uint16)


def random_blocks(
    rng: np.random.Generator, scheme: dict[str, Any], count: int
) -> npt.NDArray[np.uint8]:
    """(count, block bytes) of a checkpoint: any codes, finite scales from denormal to large."""
    name, block_bytes = scheme["name"], scheme["block_bytes"]
    if name == "f32":
        return awkward(rng, count, 1).view(np.uint8)
    if name == "f16":
        return awkward(rng, count, 1).clip(-65504, 65504).astype(np.float16).view(np.uint8)
    if name == "bf16":
        return np.ascontiguousarray(awkward(rng, count, 1).view(np.uint8)[:, 2:])
    data = rng.integers(0, 256, (count, block_bytes), dtype=np.uint8)
    for field in HALF_FIELDS[name]:
        data[:, field : field + 2] = _random_halves(rng, count, 1).view(np.uint8)
    return data


# --- Rows of floats -----------------------------------------------------------------------------


def elementwise_cases() -> Iterator[KernelCase]:
    """Norms, gates and the rest, at every width."""
    for width in WIDTHS:
        rng = np.random.default_rng(width)
        x, y = awkward(rng, 3, width), awkward(rng, 3, width)
        weight, gate = awkward(rng, width), awkward(rng, 3, 2 * width)
        label = f"width {width}"
        yield KernelCase("rms_norm", label, _native.rms_norm, (x, weight, 1e-6))
        yield KernelCase("gated silu", label, _native.gated, (gate, "silu"))
        yield KernelCase("gated gelu_tanh", label, _native.gated, (gate, "gelu_tanh"))
        yield KernelCase("add", label, _native.add, (x, y))
        yield KernelCase("scale", label, _native.scale, (x, 0.1))
        yield KernelCase("softcap", label, _native.softcap, (x, 30.0))


def function_cases() -> Iterator[KernelCase]:
    """The functions the kernels are made of."""
    rng = np.random.default_rng(5)
    for width in WIDTHS:
        x, label = awkward(rng, width), f"{width} values"
        wide = rng.uniform(-200_000.0, 200_000.0, width)
        yield KernelCase("exp", label, _native.exp, (x,))
        yield KernelCase("log", label, _native.log, (np.abs(x),))
        yield KernelCase("tanh", label, _native.tanh, (x,))
        yield KernelCase("exp_double", label, _native.exp_double, (wide / 300.0,))
        yield KernelCase("log_double", label, _native.log_double, (np.abs(wide),))
        yield KernelCase("sin_cos_double", label, _native.sin_cos_double, (wide,))


# --- Experts ------------------------------------------------------------------------------------


def expert_cases() -> Iterator[KernelCase]:
    """Routing, among equals and where no expert is best too, and the weighted sum of experts."""
    for experts in (1, 8, 17, 60, 128):
        rng = np.random.default_rng(experts)
        logits = awkward(rng, 5, experts)
        logits[1] = logits[1, 0]
        logits[2] = np.round(logits[2])
        logits[3, experts // 2] = np.nan
        for top_k in sorted({1, (experts + 1) // 2, experts}):
            for normalize in (True, False):
                label = f"{top_k} of {experts}"
                yield KernelCase("route", label, _native.route, (logits, top_k, normalize))
    for width in WIDTHS:
        rng = np.random.default_rng(width)
        y, add = awkward(rng, 9, width), awkward(rng, width)
        rows = rng.permutation(9).astype(np.int32)[:8]
        weights = rng.random(8).astype(np.float32)
        yield KernelCase("combine", f"width {width}", _native.combine, (y, rows, weights, add))


# --- Attention ----------------------------------------------------------------------------------


def attention_cases() -> Iterator[KernelCase]:
    """Rope, KV store and attention, with contexts that straddle blocks and spans."""
    for dim in (32, 64, 128):
        rng = np.random.default_rng(dim)
        positions = np.array([0, 1, 15, 1000, 131_071], np.int32)
        frequencies = _native.rope_inverse_frequencies(1e6, dim)
        heads, label = awkward(rng, len(positions), 3, dim), f"dim {dim}"
        yield KernelCase("rope table", label, _native.rope_table, (positions, frequencies))
        yield KernelCase("rope", label, _rotated, (heads, positions, frequencies))
    for dtype in KV_DTYPES:
        for dim in (16, 64, 80):
            for context, rows in ((1, 1), (15, 3), (16, 16), (17, 1), (100, 7), (2100, 2)):
                for softcap, window in ((0.0, 0), (50.0, 40)):
                    rng = np.random.default_rng((dim, context, window))
                    label = f"dim {dim}, {rows} of {context} tokens, window {window}"
                    k, v = rng.standard_normal((2, context, 2, dim)).astype(np.float32)
                    q = (4 * rng.standard_normal((rows, 6, dim))).astype(np.float32)
                    arguments = (dtype, k, v, q, softcap, window)
                    yield KernelCase(f"attention {dtype}", label, _attended, arguments)


def _rotated(
    isa: str,
    heads: Floats,
    positions: npt.NDArray[np.int32],
    frequencies: npt.NDArray[np.float64],
) -> Floats:
    cos, sin = _native.rope_table("scalar", positions, frequencies)
    rotated = heads.copy()
    _native.rope_rows(isa, rotated, cos, sin)
    return rotated


def _attended(
    isa: str, dtype: KvDtype, k: Floats, v: Floats, q: Floats, softcap: float, window: int
) -> Results:
    """The pool after storing k and v (tokens, kv heads, dim), and q's attention over it."""
    context, kv_heads, dim = k.shape
    blocks = -(-context // _BLOCK_TOKENS)
    table = np.arange(blocks, dtype=np.int32)[::-1].copy()
    token_bytes = kv_heads * KV_SIDES[dtype].token_bytes(dim)
    pool = np.zeros(blocks * _BLOCK_TOKENS * token_bytes, np.uint8)
    kernels = _native.TestPool(isa, dtype, 1, kv_heads, dim, pool)
    tokens = np.arange(context, dtype=np.int32)
    kernels.store(0, table[tokens // _BLOCK_TOKENS], tokens % _BLOCK_TOKENS, k, v)
    whole, in_parts = (
        kernels.attend(
            0, table, context - len(q), q, dim**-0.5, softcap, window, [len(q)], parts=parts
        )
        for parts in (0, 3)
    )
    return pool, whole, in_parts


# --- Sampling -----------------------------------------------------------------------------------


def sampling_cases() -> Iterator[KernelCase]:
    """Choices of tokens, among equals and where there is nothing to choose too."""
    for width in (*WIDTHS, 151_936):
        rng = np.random.default_rng(width)
        equal = np.full(width, np.float32(2.5))
        holes = awkward(rng, width)
        holes[rng.random(width) < 0.5] = -np.inf
        broken = awkward(rng, width)
        broken[width // 2] = np.nan
        for label, logits in {
            "random": awkward(rng, width),
            "equal": equal,
            "half of them masked": holes,
            "all masked": np.full(width, -np.inf, np.float32),
            "with a NaN": broken,
        }.items():
            name = f"{width} logits, {label}"
            yield KernelCase("argmax", name, _native.choose, (logits, 0.0))
            key = (2**63 + 11, 1, 77)
            yield KernelCase("sample", name, _native.choose, (logits, 0.7, *key))
            filters = (40, 0.95, 0.01, 0.9)
            yield KernelCase("top-k top-p", name, _native.choose, (logits, 0.7, *key, *filters))
            if label in ("random", "equal", "half of them masked"):
                yield KernelCase("log_sum_exp", name, _native.log_sum_exp, (logits,))
    counter = np.array([2**32 - 2, 7, 2**31, 1], np.uint32)
    for count in WIDTHS:
        yield KernelCase("gumbel", f"{count}", _native.gumbel, (2**64 - 3, 2, 9, 5, count))
        yield KernelCase(
            "philox", f"{count}", _native.philox, (0x1234_5678_9ABC_DEF0, counter, count)
        )


# --- Weights to codes ---------------------------------------------------------------------------


def rounding_cases() -> Iterator[KernelCase]:
    """Codes and scales of weights for groups of every kind, and for whole matrices."""
    for cols, group in ((33, 16), (200, 64), (300, 300), (70, 0)):
        rng = np.random.default_rng((cols, group))
        values = (0.02 * awkward(rng, 37, cols)).clip(-9, 9)
        values[5] = 0.0
        codebook = np.sort(rng.permutation(255)[:16] - 127).astype(np.int8)
        label = f"({len(values)}, {cols}), groups of {group}" if group else f"whole {values.shape}"
        for method in ("absmax", "mse", "weighted"):
            for bits in (2, 4, 8):
                for minimum in (False, True):
                    kernel = f"round {method} w{bits}" + ("m" if minimum else "")
                    plain = (values, group, method, bits, minimum, None)
                    yield KernelCase(kernel, label, _rounded, plain)
            coded = (values, group, method, 4, False, codebook)
            yield KernelCase(f"round {method} codebook", label, _rounded, coded)


def _rounded(
    isa: str,
    values: Floats,
    group: int,
    method: str,
    bits: int,
    minimum: bool,
    codebook: npt.NDArray[np.int8] | None,
) -> Results:
    codes, scales, minimums = _native.round_weights(
        values,
        group,
        method,
        bits=bits,
        minimum=minimum,
        codebook=codebook,
        reach=None if codebook is None else 127.0,
        isa=isa,
    )
    return (codes, scales) if minimums is None else (codes, scales, minimums)
