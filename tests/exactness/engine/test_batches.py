"""A request gets the same bits whoever is computed beside it, in whatever pieces, by whom."""

from __future__ import annotations

import pytest

from support.engine_grid import Grid
from support.engine_scenarios import among, one_after_another, together


@pytest.mark.parametrize("subject", range(8))
def test_beside_one_neighbour(tiny: Grid, subject: int) -> None:
    among(tiny, 2, subject, first=subject)


@pytest.mark.parametrize("seed", range(3))
def test_in_a_batch_of_seven(grid: Grid, seed: int) -> None:
    among(grid, 7, seed)


@pytest.mark.parametrize(("num_threads", "every_row"), [(1, True), (2, False), (3, True)])
def test_in_a_batch_of_thirty_three(every_grid: Grid, num_threads: int, every_row: bool) -> None:
    among(every_grid, 33, num_threads, num_threads=num_threads, every_row=every_row)


@pytest.mark.parametrize("rows", [1, 7, 16])
def test_prompts_in_chunks(grid: Grid, rows: int) -> None:
    run = together(grid, max_num_batched_tokens=rows)
    assert run.now > sum(len(spec.prompt) for spec in grid.subjects) // rows


@pytest.mark.parametrize("chunk", [1, 5, 16])
def test_prompts_in_chunks_beside_running_streams(tiny: Grid, chunk: int) -> None:
    run = tiny.run(max_prefill_chunk=chunk)
    (stream,) = run.submit(tiny.spec(tiny.prompt(chunk, 3), 240))
    run.step()
    for spec in tiny.subjects:
        run.submit(spec)
    pieces = []
    while run.engine.has_work:
        run.step()
        reading = [r for r in run.runner.last.rows if r.start < r.request.num_prompt_tokens - 1]
        pieces.append(sum(rows.num_tokens for rows in reading))
        assert stream.finished or pieces[-1] <= chunk
    assert pieces.count(chunk) > 100 // chunk
    tiny.check(run)


def test_whole_prompts_one_after_another(grid: Grid) -> None:
    one_after_another(grid)
