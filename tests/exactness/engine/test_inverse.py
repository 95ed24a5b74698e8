"""The inverse tests: what other tests of this folder must notice, they notice.

A server that takes another kernel for a batch than for one sequence adds the same numbers in
another order. So do the executors here, in passes of their own choice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from farthing.engine.block_pool import BLOCK_TOKENS
from farthing.engine.prefix_cache import CachedBlock
from farthing.program.kv_types import KvDtype
from farthing.program.native import NativeExecutor
from farthing.program.step import SequenceRows, StepBatch, step_batch
from farthing.sampling.sampler import SampledRow, Sampler
from support.engine_grid import EngineModel, Grid
from support.engine_scenarios import (
    among,
    broken_off,
    choices,
    in_small_pool,
    one_after_another,
    preempted,
    together,
)
from support.recorded_logits import Executor
from support.regrouped import (
    OtherPasses,
    OtherTables,
    When,
    last_key_first,
    with_columns_in_another_order,
)

Regrouping = Callable[[NativeExecutor], Executor]


@pytest.fixture(scope="module")
def plain(make_grid: Callable[[tuple[str, KvDtype]], Grid]) -> Grid:
    return make_grid(("qwen2", "fp16"))


@pytest.fixture(scope="module", params=["the MLP's columns", "attention's blocks"])
def regrouped(
    request: pytest.FixtureRequest, plain: Grid, tmp_path_factory: pytest.TempPathFactory
) -> Regrouping:
    """What computes the same in another order."""
    if request.param == "attention's blocks":
        return lambda executor: OtherTables(executor, last_key_first)
    folder = tmp_path_factory.mktemp("regrouped")
    other = EngineModel(with_columns_in_another_order(plain.model.path, folder / "model"))
    return lambda executor: other.executor(executor.num_threads, executor.max_rows)


def test_a_regrouping_changes_bits_and_nothing_that_matters(
    plain: Grid, regrouped: Regrouping
) -> None:
    """By less than the rounding of what is cached does."""
    tokens = plain.prompt(1, 220)
    table = list(range(14))

    def logits(executor: Executor, dtype: KvDtype) -> np.ndarray:
        kv = plain.model.cache(dtype, 14)
        parts = []
        for start, end in ((0, 100), (100, 219), (219, 220)):
            rows = SequenceRows(tokens[start:end], start, table, logits=end - start)
            parts.append(executor.run(step_batch([rows]), kv).logits.copy())
        return np.concatenate(parts)

    executor = plain.model.executor(2, 512)
    right = logits(executor, "fp16")
    difference = np.abs(logits(regrouped(executor), "fp16") - right).max()
    rounding = np.abs(logits(executor, "fp32") - right).max()
    assert 0 < difference < rounding


@dataclass(frozen=True)
class Case:
    """A way to compute, and the passes that are regrouped."""

    play: Callable[..., object]
    when: When


def several(batch: StepBatch) -> bool:
    return batch.num_sequences > 1


def later(batch: StepBatch) -> bool:
    """Parts of prompts behind their first ones."""
    lengths = np.diff(batch.row_offsets)
    return bool(((batch.positions[batch.row_offsets[:-1]] > 0) & (lengths > 1)).any())


def few(batch: StepBatch) -> bool:
    return batch.num_rows <= 16


CASES: dict[str, Case] = {
    "two": Case(lambda grid, **s: among(grid, 2, 0, first=2, **s), several),
    "seven": Case(lambda grid, **s: among(grid, 7, 1, **s), several),
    "thirty-three": Case(lambda grid, **s: among(grid, 33, 1, **s), several),
    "chunks": Case(lambda grid, **s: together(grid, max_num_batched_tokens=16, **s), few),
    "later chunks": Case(lambda grid, **s: together(grid, max_num_batched_tokens=40, **s), later),
    "one after another": Case(one_after_another, few),
    "prefix": Case(lambda grid, **s: _shared(grid, **s), later),
    "preempted": Case(lambda grid, **s: preempted(grid, 2, whole_batch=False, **s), several),
    "small pool": Case(lambda grid, **s: in_small_pool(grid, grid.subjects, 3, **s), several),
    "broken off": Case(lambda grid, **s: broken_off(grid, {2, 3}, over=True, **s), later),
    "choices": Case(
        lambda grid, **s: choices(
            grid, grid.spec(grid.prompt(3, 60), n=3, temperature=1.0, seed=1), **s
        ),
        several,
    ),
    "static": Case(lambda grid, **s: together(grid, batching="static", **s), several),
    "no cache": Case(
        lambda grid, **s: together(grid, use_cache=False, max_num_batched_tokens=40, **s), later
    ),
    "three threads": Case(lambda grid, **s: one_after_another(grid, num_threads=3, **s), few),
    "over spans": Case(
        lambda grid, **s: _long(grid, **s), lambda batch: int(batch.positions.max()) > 2048
    ),
}


def _shared(grid: Grid, **settings: Any) -> None:
    run = grid.run(**settings)
    for seed in range(2):
        run.submit(grid.spec(grid.prompt(4, 50) + grid.prompt(seed, 9)))
        run.finish()
    grid.check(run)


def _long(grid: Grid, **settings: Any) -> None:
    run = grid.run(num_blocks=140, **settings)
    run.submit(grid.spec(grid.prompt(5, 2100), 3))
    grid.finish_and_check(run)


@pytest.mark.parametrize("name", CASES)
def test_sums_in_another_order_are_noticed(plain: Grid, regrouped: Regrouping, name: str) -> None:
    case = CASES[name]
    case.play(plain)

    def instead(executor: NativeExecutor) -> Executor:
        return OtherPasses(executor, regrouped(executor), case.when)

    with pytest.raises(AssertionError, match="other logits at"):
        case.play(plain, instead=instead)


def copied(grid: Grid, **settings: Any) -> None:
    """A cached prompt, and choices of another: each has a copy of a shared block."""
    run = grid.run(**settings)
    for _ in range(2):
        run.submit(grid.spec(grid.prompt(6, 32)))
        run.finish()
    run.submit(grid.spec(grid.prompt(7, 40), n=2, temperature=1.0, seed=3))
    grid.finish_and_check(run)


@pytest.mark.parametrize("poison", [True, False])
def test_a_copy_that_is_not_made_is_noticed(every_grid: Grid, poison: bool) -> None:
    copied(every_grid, poison=poison)
    with pytest.raises(AssertionError, match="other logits at"):
        copied(every_grid, poison=poison, drop_copies=True)


def test_a_block_of_another_request_is_noticed(every_grid: Grid) -> None:
    def steal(batch: StepBatch, tables: NDArray[np.int32]) -> None:
        behind = np.flatnonzero(batch.positions[batch.row_offsets[:-1]] >= BLOCK_TOKENS)
        if len(behind) > 1:
            tables[behind[0], 0] = tables[behind[1], 0]

    together(every_grid)
    with pytest.raises(AssertionError, match="other logits at"):
        together(every_grid, instead=lambda executor: OtherTables(executor, steal))


def test_a_block_of_nobody_is_noticed_at_once(every_grid: Grid) -> None:
    """What is read of memory that nobody owns is NaN, whoever wrote there before."""
    freed: list[int] = []

    def read_freed(batch: StepBatch, tables: NDArray[np.int32]) -> None:
        if freed:
            assert freed[0] not in tables
            tables[0, 0] = freed[0]

    run = every_grid.run(
        prefix_caching=False, instead=lambda executor: OtherTables(executor, read_freed)
    )
    (gone,) = run.submit(every_grid.spec(every_grid.prompt(8, 60), 2))
    run.step()
    block = gone.block_table[-1]
    run.finish()
    (request,) = run.submit(every_grid.spec(every_grid.prompt(9, 17), 8))
    for _ in range(3):
        run.step()
    freed.append(block)
    run.finish()
    assert run.outcome(request).problem is not None
    assert "not finite" in run.outcome(request).problem
    assert len(request.output_token_ids) == 3


def test_a_wrong_hit_is_noticed(every_grid: Grid, monkeypatch: pytest.MonkeyPatch) -> None:
    """Digests that collide, and nobody compares tokens."""
    run = every_grid.run()
    assert run.engine.prefix_cache is not None
    monkeypatch.setattr(run.engine.prefix_cache, "_digest", lambda before, tokens: b"the same")
    monkeypatch.setattr(CachedBlock, "follows", lambda self, parent, salt, tokens: True)
    for spec in every_grid.subjects:
        run.submit(spec)
        run.finish()
    with pytest.raises(AssertionError, match="other logits at"):
        every_grid.check(run)


def test_noise_of_a_neighbour_is_noticed(plain: Grid, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = Sampler.draw

    def with_the_first_seed(
        self: Sampler, logits: Any, rows: list[SampledRow], indices: Any = None
    ) -> list[int]:
        return draw(self, logits, [replace(row, seed=rows[0].seed) for row in rows], indices)

    together(plain)
    monkeypatch.setattr(Sampler, "draw", with_the_first_seed)
    with pytest.raises(AssertionError, match="other logits at"):
        together(plain)
