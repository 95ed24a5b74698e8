"""Results are bits: the rounding and denormal mode of the caller's thread must not reach them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import farthing
from support.native_runs import NativeModel, assert_same_bits
from support.tiny_models import make_tiny_model

TOKENS = [7, 3, 11, 5, 2, 13, 8, 1] * 6

# Rounds upward, flushes denormal results to zero and reads denormals as zero.
CHILD = f"""
import ctypes, mmap, sys
from pathlib import Path
import numpy as np
from farthing import _native
from support.native_runs import NativeModel

page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(bytes.fromhex("0fae17c3" "0fae1fc3"))  # ldmxcsr [rdi]; ret; stmxcsr [rdi]; ret
address = ctypes.addressof(ctypes.c_char.from_buffer(page))
function = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_uint32))
load, store = function(address), function(address + 4)
UPWARD_FTZ_DAZ = 0x1F80 | 0x4000 | 0x8000 | 0x0040

def mode():
    value = ctypes.c_uint32()
    store(value)
    return value.value & ~0x3F  # without the flags of past operations

def third():
    return [1.0, 0.0][0] / [3.0][0]

rng = np.random.default_rng(0)
x = rng.standard_normal((8, 64), np.float32)
packed = rng.integers(0, 60, 64 * 68, np.uint8)

def computed():
    isa = _native.isa()
    row, wide = x.reshape(-1), x.reshape(-1).astype(np.float64)
    rotated, cache = x.reshape(8, 4, 16).copy(), np.zeros(4 * 2 * 2 * 16 * 16, np.uint8)
    matrix = _native.Matrix("q8_0", 64, 64)
    matrix.pack(0, packed)
    cos, sin = _native.rope_table(isa, np.arange(8, dtype=np.int32), wide[:8])
    _native.rope_rows(isa, rotated, cos, sin)
    pool = _native.TestPool(isa, "fp16", 1, 1, 16, cache)
    table = np.zeros(8, np.int32)
    k, v = rotated[:, :1].copy(), rotated[:, 1:2].copy()
    first = np.zeros(1, np.int32)
    pool.store(0, table, np.arange(8, dtype=np.int32), k, v)
    return [
        _native.rope_inverse_frequencies(10000.0, 64), cos, sin, rotated, cache,
        pool.attend(0, table, 0, rotated, 0.25, 0.0, 0, [8]),
        matrix.dequantize(0, 64), _native.linear(matrix, x, isa),
        *_native.quantize_rows(x, 32, isa),
        _native.rms_norm(isa, x, x[0], 1e-6), _native.gated(isa, x, "silu"),
        _native.add(isa, x, x[::-1].copy()), _native.scale(isa, x, 3.0),
        _native.softcap(isa, x, 3.0), _native.exp(isa, row), _native.log(isa, abs(row)),
        _native.tanh(isa, row), _native.exp_double(isa, wide),
        _native.log_double(isa, abs(wide)), *_native.sin_cos_double(isa, wide),
        np.array(_native.log_sum_exp(isa, row)), _native.gumbel(isa, 1, 2, 3, 0, 64),
        *_native.RowSampler(None).logprobs(row[None], first, first, first + 4),
        _native.RowSampler(None).draw(
            row[None], first, np.array([0.7], np.float32), first.astype(np.uint64),
            first.astype(np.uint32), first.astype(np.uint32), [None],
            [_native.Controls(len(row), [], top_p=0.9)],
        ),
    ]

if sys.argv[1] == "changed":
    expected = computed()
    nearest, one, tiny = third(), float(1), 5e-324
    load(ctypes.c_uint32(UPWARD_FTZ_DAZ))
    assert mode() == UPWARD_FTZ_DAZ
    assert third() > nearest and one + 1e-30 > one and tiny * one == 0
    with _native.FloatMode():
        assert third() == nearest and one + 1e-30 == one and tiny * one > 0
    assert third() > nearest and mode() == UPWARD_FTZ_DAZ
    for index, (actual, right) in enumerate(zip(computed(), expected, strict=True)):
        assert actual.tobytes() == right.tobytes(), index
    assert mode() == UPWARD_FTZ_DAZ
before = mode()
logits = NativeModel(Path(sys.argv[2])).run().logits({TOKENS})
assert mode() == before
np.save(sys.argv[3], logits)
"""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its rope frequencies are scaled: arithmetic that Python does."""
    return make_tiny_model("llama-llama3-rope", tmp_path_factory.mktemp("tiny"))


def child_logits(mode: str, model: Path, out: Path) -> np.ndarray:
    command = [sys.executable, "-c", CHILD, mode, str(model), str(out)]
    places = [Path(__file__).parents[1], Path(farthing.__file__).parents[1]]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places))}
    child = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert child.returncode == 0, child.stderr
    return np.load(out)


def test_the_callers_float_mode_changes_no_result(tiny: Path, tmp_path: Path) -> None:
    expected = NativeModel(tiny).run().logits(TOKENS)
    for mode in ("changed", "as it is"):
        assert_same_bits(child_logits(mode, tiny, tmp_path / "logits.npy"), expected)
