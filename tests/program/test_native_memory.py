"""What a pass may take beside weights and KV cache, and that it does not grow with the context."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from farthing.engine.block_pool import BLOCK_TOKENS as POOL_BLOCK_TOKENS
from farthing.program.native import KvCache
from farthing.program.step import BLOCK_TOKENS, SequenceRows
from support.kv_bytes import TOKEN_BYTES
from support.native_runs import NativeModel
from support.tiny_models import make_tiny_model

LONG = 32_768
ROWS = 128
FREE = 1 << 20

# One pass, the first, at a position. All earlier positions name the same few blocks, so that the
# memory of the pool that is touched is the same at every position. `extra` bytes are taken and
# given back meanwhile.
CHILD = """
import ctypes, json, sys
from pathlib import Path
import numpy as np
from farthing.program.step import SequenceRows
from support.native_runs import NativeModel

PR_SET_THP_DISABLE = 41  # a page of 2 MiB would come or not, as the system has them to give
assert ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0
path, tokens, rows, position, extra = sys.argv[1], *map(int, sys.argv[2:])

def resident(field):
    status = Path("/proc/self/status").read_text()
    return int(status.split(field + ":")[1].split()[0]) * 1024

run = NativeModel(Path(path)).run(tokens=tokens)
ids = np.random.default_rng(0).integers(0, 300, rows).tolist()
blocks = rows // 16
step = [SequenceRows(ids, position, [i % blocks for i in range(tokens // 16)])]
Path("/proc/self/clear_refs").write_text("5")  # the peak of loading is forgotten
before = resident("VmHWM")
run.step(step)
if extra:
    np.ones(extra, np.uint8)
print(json.dumps([resident("VmHWM") - before, run.executor.workspace_bytes, before]))
"""


@pytest.fixture(scope="module")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model("llama-mha", tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def tiny(tiny_path: Path) -> NativeModel:
    return NativeModel(tiny_path)


def first_pass(path: Path, position: int, extra: int = 0, rows: int = ROWS) -> tuple[int, int]:
    """Bytes by which the first pass of a new process raises its peak, and of its workspace."""
    arguments = [str(n) for n in (LONG, rows, position, extra)]
    tests = str(Path(__file__).parents[1])
    search = os.pathsep.join(filter(None, (tests, os.environ.get("PYTHONPATH"))))
    child = subprocess.run(
        [sys.executable, "-c", CHILD, str(path), *arguments],
        env={**os.environ, "PYTHONPATH": search},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=250,
    )
    growth, workspace, before = json.loads(child.stdout)
    assert 0 < growth < before
    return growth, workspace


def test_memory_of_a_pass_does_not_depend_on_context_length(tiny_path: Path) -> None:
    start, end = first_pass(tiny_path, 0), first_pass(tiny_path, LONG - ROWS)
    assert end[0] <= start[0] + FREE
    assert end[1] == start[1]


def test_memory_of_decoding_does_not_depend_on_context_length(tiny_path: Path) -> None:
    """Where the threads share the spans of one sequence, of which there are 32 at the end."""
    start, end = (first_pass(tiny_path, at, rows=16) for at in (0, LONG - 16))
    assert end[0] <= start[0] + FREE
    assert end[1] == start[1]


def test_scratch_of_one_float_a_position_and_row_would_show(tiny_path: Path) -> None:
    """The inverse test: even memory that is given back within the pass is seen."""
    start = first_pass(tiny_path, 0)
    assert first_pass(tiny_path, LONG - ROWS, extra=4 * ROWS * LONG)[0] > start[0] + FREE


@pytest.mark.slow
def test_memory_of_the_default_model_does_not_depend_on_context_length(qwen_gguf: Path) -> None:
    start, end = first_pass(qwen_gguf, 0), first_pass(qwen_gguf, LONG - ROWS)
    assert end[0] <= start[0] + FREE
    assert end[1] == start[1] < 64 << 20


def test_the_block_size_is_one_number(tiny: NativeModel) -> None:
    config = tiny.config
    assert POOL_BLOCK_TOKENS == BLOCK_TOKENS
    for dtype, halves in TOKEN_BYTES.items():
        kv = KvCache(
            dtype=dtype,
            num_layers=config.num_layers,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            num_blocks=3,
        )
        heads = config.num_layers * config.num_kv_heads
        per_token = heads * sum(config.head_dim * bits // 8 + scale for bits, scale in halves)
        assert kv.block_bytes == BLOCK_TOKENS * per_token
        assert kv.nbytes == 3 * kv.block_bytes


def test_indices_outside_their_range_are_refused_by_name(tiny: NativeModel) -> None:
    run = tiny.run(tokens=64)
    table = run.new_sequence(32)
    vocab = tiny.config.vocab_size
    with pytest.raises(ValueError, match=f"tokens has {vocab}, must be from 0 below {vocab}"):
        run.step([SequenceRows([vocab], 0, table)])
    with pytest.raises(ValueError, match="tokens has -1"):
        run.step([SequenceRows([-1], 0, table)])
    with pytest.raises(ValueError, match="block_tables has 4, must be from 0 below 4"):
        run.step([SequenceRows([1], 0, [4])])
    with pytest.raises(ValueError, match="the step has 513, must be at most 512 rows"):
        tiny.run().step([SequenceRows([1] * 513, 0, list(range(40)))])
