"""Row-wise float ops: the contract's arithmetic bit for bit, the truth, every ISA, every width."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from .float32_model import (
    BEST,
    ISAS,
    Doubles,
    Floats,
    flat,
    fma32,
    hostile,
    native,
    same_bits,
    tree_sum,
)

WIDTHS = [1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 47, 48, 49, 127, 896, 1001]
EPS = np.float32(1e-6)

# Each op as a function of (isa, x) with x (rows, width), for what all of them must keep.
OPS: dict[str, Callable[[str, Floats], Floats]] = {
    "rms_norm": lambda isa, x: native.rms_norm(isa, x, x[0].copy(), float(EPS)),
    "silu": lambda isa, x: native.gated(isa, np.concatenate([x, x[::-1]], axis=1), "silu"),
    "gelu_tanh": lambda isa, x: native.gated(
        isa, np.concatenate([x, x[::-1]], axis=1), "gelu_tanh"
    ),
    "add": lambda isa, x: native.add(isa, x, np.ascontiguousarray(x[::-1])),
    "scale": lambda isa, x: native.scale(isa, x, 0.3),
    "softcap": lambda isa, x: native.softcap(isa, x, 30.0),
}


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("width", WIDTHS)
def test_every_isa_gives_the_same_bits(op: str, width: int) -> None:
    x = hostile(np.random.default_rng(width), (4, width))
    x[1, width // 2] = np.nan
    x[2, width - 1] = np.inf
    results = [OPS[op](isa, x) for isa in ISAS]
    assert all(same_bits(r, results[0]) for r in results[1:])
    assert width < 7 or np.unique(results[0][3]).size > 3


@pytest.mark.parametrize("op", [op for op in OPS if op != "rms_norm"])
def test_a_column_depends_on_its_own_column_alone(op: str) -> None:
    x = hostile(np.random.default_rng(5), (2, 64))
    for isa in ISAS:
        whole = OPS[op](isa, x)
        for width in (1, 5, 16, 31):
            assert same_bits(OPS[op](isa, np.ascontiguousarray(x[:, :width])), whole[:, :width])


def rms_norm_model(x: Floats, weight: Floats, eps: np.float32) -> Floats:
    padded = np.zeros(-(-x.size // 16) * 16, np.float32)
    padded[: x.size] = x
    lanes = np.zeros(16, np.float32)
    for columns in padded.reshape(-1, 16):
        lanes = fma32(columns, columns, lanes)
    mean = tree_sum(lanes) / np.float32(x.size)
    inverse = np.float32(1) / np.sqrt(mean + eps)
    result: Floats = (x * inverse) * weight
    return result


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("width", WIDTHS)
def test_rms_norm_adds_in_the_order_of_the_contract(isa: str, width: int) -> None:
    rng = np.random.default_rng(width)
    x, weight = hostile(rng, (3, width)), hostile(rng, (width,))
    with np.errstate(over="ignore", under="ignore"):
        expected = np.stack([rms_norm_model(row, weight, EPS) for row in x])
    assert same_bits(native.rms_norm(isa, x, weight, float(EPS)), expected)


@pytest.mark.parametrize("isa", ISAS)
def test_a_regrouped_norm_has_other_bits(isa: str) -> None:
    """What the test above would catch: the same sum with its lanes joined in another order."""
    x = np.random.default_rng(6).standard_normal((64, 896)).astype(np.float32)
    ours = native.rms_norm(isa, x, np.ones(896, np.float32), float(EPS))
    regrouped = []
    for row in x:
        lanes = np.zeros(16, np.float32)
        for columns in row.reshape(-1, 16):
            lanes = fma32(columns, columns, lanes)
        total = np.float32(0)
        for lane in lanes:
            total = total + lane
        regrouped.append(row * (np.float32(1) / np.sqrt(total / np.float32(896) + EPS)))
    assert not same_bits(ours, np.stack(regrouped))


def gelu_truth(x: Doubles) -> Doubles:
    result: Doubles = x / (1 + np.exp(-2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return result


def gelu_plain(x: Any) -> Any:
    one = np.float32(1)
    inner = np.float32(np.sqrt(2 / np.pi)) * (x + np.float32(0.044715) * x * x * x)
    return np.float32(0.5) * x * (one + np.tanh(inner))


def silu_truth(x: Doubles) -> Doubles:
    result: Doubles = x / (1 + np.exp(-x))
    return result


def silu_plain(x: Any) -> Any:
    return x / (np.float32(1) + np.exp(-x))


@pytest.mark.parametrize(
    ("activation", "truth", "plain"),
    [("silu", silu_truth, silu_plain), ("gelu_tanh", gelu_truth, gelu_plain)],
)
def test_activations_against_the_truth(
    activation: str,
    truth: Callable[[Doubles], Doubles],
    plain: Callable[[Floats], Floats],
) -> None:
    x = np.random.default_rng(7).uniform(-12, 12, (8, 2000)).astype(np.float32)
    both = np.concatenate([x, np.ones_like(x)], axis=1)
    exact = truth(x.astype(np.float64))
    ours = np.abs(native.gated(BEST, both, activation) - exact)
    assert plain(x).dtype == np.float32
    theirs = np.abs(plain(x) - exact)
    assert ours.max() <= 2 * theirs.max()
    assert np.sqrt((ours**2).mean()) <= 2 * np.sqrt((theirs**2).mean())


@pytest.mark.parametrize("isa", ISAS)
def test_activations_far_out(isa: str) -> None:
    gate = np.array([[-200.0, -30.0, 0.0, 30.0, 200.0, 3e38]], np.float32)
    both = np.concatenate([gate, np.full_like(gate, 2.0)], axis=1)
    silu, gelu = (native.gated(isa, both, name)[0] for name in ("silu", "gelu_tanh"))
    assert list(silu[[0, 2, 3, 4]]) == [0, 0, 60, 400]
    assert list(gelu[[0, 1, 2, 3, 4]]) == [0, 0, 0, 60, 400]
    assert -1e-11 < silu[1] < 0
    assert silu[5] == gelu[5] == np.inf  # 6e38


@pytest.mark.parametrize("isa", ISAS)
def test_simple_ops_are_one_rounding_each(isa: str) -> None:
    rng = np.random.default_rng(8)
    a, b = hostile(rng, (3, 77)), hostile(rng, (3, 77))
    cap = np.float32(50)
    assert same_bits(native.add(isa, a, b), a + b)
    assert same_bits(native.scale(isa, a, 1.7), a * np.float32(1.7))
    assert same_bits(native.softcap(isa, a, 50.0), cap * flat(native.tanh, a / cap))
    assert np.abs(native.softcap(isa, a * 1000, 50.0)).max() <= 50


@pytest.mark.parametrize("isa", ISAS)
def test_rms_norm_against_the_truth(isa: str) -> None:
    rng = np.random.default_rng(9)
    x = rng.standard_normal((16, 896)) * rng.lognormal(0, 1.5, (16, 896))
    x32, weight = x.astype(np.float32), rng.uniform(0.5, 2, 896).astype(np.float32)
    exact64 = x32.astype(np.float64)
    exact = exact64 / np.sqrt((exact64**2).mean(axis=1, keepdims=True) + float(EPS)) * weight
    total = np.zeros((16, 1), np.float32)
    for column in range(896):
        total = total + x32[:, column : column + 1] * x32[:, column : column + 1]
    plain = x32 / np.sqrt(total / np.float32(896) + EPS) * weight
    ours = np.abs(native.rms_norm(isa, x32, weight, float(EPS)) - exact)
    theirs = np.abs(plain - exact)
    assert ours.max() <= 2 * theirs.max()
    assert np.sqrt((ours**2).mean()) <= 2 * np.sqrt((theirs**2).mean())


GUARDED = """
import ctypes, mmap, sys
import numpy as np
from farthing import _native as native
page = mmap.PAGESIZE
memory = mmap.mmap(-1, 2 * page)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(address + page), page, 0) == 0
whole = np.frombuffer(memory, np.float32)
isa = sys.argv[1]
for width in (1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 100):
    row = whole[page // 4 - width : page // 4]
    row[:] = np.arange(width) - 3
    matrix = row.reshape(1, width)
    native.rms_norm(isa, matrix, row, 1e-6)
    native.add(isa, matrix, matrix)
    native.scale(isa, matrix, 0.5)
    native.softcap(isa, matrix, 0.5)
    if width % 2 == 0:
        native.gated(isa, matrix, "silu")
        native.rope_rows(isa, matrix[None], row[None, : width // 2], row[None, width // 2 :])
    for function in (native.exp, native.log, native.tanh, native.log_sum_exp):
        function(isa, row)
    for temperature in (0.0, 1.0):
        native.choose(isa, row, temperature, top_p=0.9, min_p=0.01, typical_p=0.9)
    native.row_logprobs(isa, row, 0, width)
print("read nothing past the end")
"""


@pytest.mark.parametrize("isa", ISAS)
def test_rows_are_not_read_past_their_end(isa: str) -> None:
    """Every row ends where the next page may not be touched."""
    done = subprocess.run(
        [sys.executable, "-c", GUARDED, isa], capture_output=True, text=True, check=False
    )
    assert done.stdout == "read nothing past the end\n", done.stderr
