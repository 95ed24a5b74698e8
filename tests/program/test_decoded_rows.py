"""Rows decoded in memory that is used over and over are those of the ``gguf`` package."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gguf
import numpy as np
import pytest

from farthing.files.reader import FileReader
from farthing.models.checkpoint import TensorSource
from farthing.program import weights
from farthing.program.weights import NativeMatrix, decode_rows
from kernels import linear_numerics as numerics

ROWS, COLS = 83, 768


@pytest.fixture(scope="module")
def matrices(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[TensorSource, np.ndarray]]:
    """Two of each scheme of codes, and their values."""
    folder = tmp_path_factory.mktemp("matrices")
    found = []
    for seed in (0, 1):
        for scheme in numerics.BLOCK_SCHEMES:
            raw = numerics.random_rows(scheme, ROWS, COLS, np.random.default_rng(seed))
            path = folder / f"{scheme}-{seed}"
            path.write_bytes(raw.tobytes())
            source = TensorSource("t", FileReader(path), (ROWS, COLS), scheme, 0, raw.nbytes)
            values = gguf.dequantize(raw, gguf.GGMLQuantizationType[scheme.upper()])
            assert len(np.unique(values)) > 100
            found.append((source, values))
    return found


def check(matrices: list[tuple[TensorSource, np.ndarray]], seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(200):
        source, values = matrices[rng.integers(len(matrices))]
        start, stop = sorted(int(i) for i in rng.choice(ROWS + 1, 2, replace=False))
        found = decode_rows(source, start, stop)
        np.testing.assert_array_equal(found.view(np.uint32), values[start:stop].view(np.uint32))


def test_whatever_was_decoded_before(matrices: list[tuple[TensorSource, np.ndarray]]) -> None:
    check(matrices, 0)


def test_threads_do_not_share_it(matrices: list[tuple[TensorSource, np.ndarray]]) -> None:
    together = threading.Barrier(4)

    def run(seed: int) -> None:
        together.wait()
        check(matrices, seed)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(run, range(4)))


def test_a_thread_makes_one_for_a_scheme_and_width_and_keeps_no_large_one(
    matrices: list[tuple[TensorSource, np.ndarray]], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[str, int]] = []

    def count(scheme: str, rows: int, cols: int) -> NativeMatrix:
        made.append((scheme, rows))
        return NativeMatrix(scheme, rows, cols)

    monkeypatch.setattr(weights, "NativeMatrix", count)
    monkeypatch.setattr(weights, "_scratch", weights._Scratch())
    for source, _ in matrices:
        for rows in (16, 80, 48, 80, 16):
            decode_rows(source, 0, rows)
    assert made == [(s, rows) for s in numerics.BLOCK_SCHEMES for rows in (16, 80)]
    made.clear()
    monkeypatch.setattr(weights, "_CHUNK_BYTES", 1)
    monkeypatch.setattr(weights, "_scratch", weights._Scratch())
    source, _ = matrices[0]
    for _ in range(3):
        decode_rows(source, 0, 16)
    assert len(made) == 3


def test_rows_are_those_of_the_file(tmp_path: Path) -> None:
    """The inverse test: with the blocks of another row it would be noticed."""
    raw = numerics.random_rows("q6_k", 4, 256, np.random.default_rng(2))
    path = tmp_path / "t"
    path.write_bytes(raw.tobytes())
    source = TensorSource("t", FileReader(path), (4, 256), "q6_k", 0, raw.nbytes)
    rows = decode_rows(source, 0, 4)
    assert not np.array_equal(rows[:3], decode_rows(source, 1, 4))
