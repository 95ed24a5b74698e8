"""Threads have work while a matrix is waited for and written, and not too much memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from farthing.models.checkpoint import open_checkpoint
from farthing.models.registry import FAMILIES, build_program
from farthing.packing import matrices
from farthing.packing.plan import plan


@pytest.mark.parametrize("ahead", [1, 4, 1000])
def test_parts_of_the_next_matrices_are_in_work(
    ahead: int, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = 0

    def chunks(rows: int, cols: int) -> Iterator[tuple[int, int]]:
        nonlocal begun
        for start in range(0, rows, 16):
            begun += 1
            yield start, min(start + 16, rows)

    monkeypatch.setattr(matrices, "row_chunks", chunks)
    checkpoint = open_checkpoint(source, FAMILIES)
    placements = plan(checkpoint, build_program(checkpoint.config), "w4g64", None, {}).matrices
    parts = [-(-placement.shape[0] // 16) for placement in placements]
    assert max(parts) > 4
    finished = 0
    with ThreadPoolExecutor(1) as threads:
        for count, made in zip(
            parts, matrices.packed_matrices(placements, "absmax", threads, ahead), strict=True
        ):
            finished += count
            assert made.matrix.nbytes > 0
            assert begun >= min(finished + ahead, sum(parts))
            assert begun < finished + ahead + max(parts)
    assert finished == begun == sum(parts)


@pytest.mark.parametrize("scheme", ["w4tensor", "w4tensorm", "km4tensor"])
def test_searches_over_whole_matrices_share_their_memory(
    scheme: str, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = open_checkpoint(source, FAMILIES)
    placements = plan(checkpoint, build_program(checkpoint.config), scheme, None, {}).matrices
    sizes = [4 * placement.shape[0] * placement.shape[1] for placement in placements]
    room = max(sizes)
    lock = threading.Lock()
    held, most = 0, 0
    fit = matrices.fit_matrix

    def watched(chunks: matrices.SourceChunks, *rest: object) -> matrices.MatrixWide:
        nonlocal held, most
        nbytes = 4 * chunks.source.rows * chunks.source.cols
        with lock:
            held += nbytes
            most = max(most, held)
        time.sleep(0.02)
        try:
            return fit(chunks, *rest)  # type: ignore[arg-type]
        finally:
            with lock:
                held -= nbytes

    monkeypatch.setattr(matrices, "fit_matrix", watched)
    monkeypatch.setattr(matrices, "SEARCHED_BYTES", room)
    found = []
    for num_threads in (8, 1):
        with ThreadPoolExecutor(num_threads) as threads:
            made = matrices.packed_matrices(placements, "mse", threads, 100)
            found.append([np.array(m.matrix.packed_bytes()) for m in made])
        assert most == room
    for one, other in zip(found[0], found[1], strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_matrix_of_more_than_the_room_has_all_of_it(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = open_checkpoint(source, FAMILIES)
    placements = plan(checkpoint, build_program(checkpoint.config), "w4tensor", None, {}).matrices
    monkeypatch.setattr(matrices, "SEARCHED_BYTES", 1)
    with ThreadPoolExecutor(4) as threads:
        made = list(matrices.packed_matrices(placements, "mse", threads, 100))
    assert len(made) == len(placements)
