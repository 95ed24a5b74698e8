"""Threads have work while a matrix is waited for, and while it is written."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

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
