"""Static batching, contiguous memory and no cache at all cost time and change no bit."""

from __future__ import annotations

import pytest

from support.engine_grid import Grid
from support.engine_scenarios import among, together

SLOTS = {"kv": "contiguous", "max_model_len": 128}


@pytest.mark.parametrize("places", [1, 3, 8])
def test_static_batching(tiny: Grid, places: int) -> None:
    run = together(tiny, batching="static", max_num_seqs=places)
    run.submit(tiny.subjects[2])
    tiny.finish_and_check(run)
    among(tiny, 7, places, batching="static", max_num_seqs=places)


@pytest.mark.parametrize("slots", [1, 3, 8])
def test_contiguous_memory(tiny: Grid, slots: int) -> None:
    run = together(tiny, num_blocks=8 * slots + 3, **SLOTS)
    assert run.engine.kv.num_slots == slots
    among(tiny, 7, slots, num_blocks=8 * slots, **SLOTS)


def test_static_batches_in_contiguous_memory(grid: Grid) -> None:
    together(grid, batching="static", num_blocks=24, **SLOTS)


@pytest.mark.parametrize("rows", [512, 50])
def test_no_cache(tiny: Grid, rows: int) -> None:
    run = together(tiny, use_cache=False, max_num_batched_tokens=rows)
    assert run.engine.prefix_cache is None
    computed = sum(len(r.output_token_ids) * r.num_prompt_tokens for _, r in run.submitted)
    assert run.runner.num_rows > computed


def test_arrival_alone_decides(tiny: Grid) -> None:
    among(tiny, 7, 20, fair_share=False)
