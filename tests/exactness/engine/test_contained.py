"""A request that ends badly changes nothing for those beside and behind it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from farthing.program.kv_types import KvDtype
from support.engine_grid import EngineModel, Grid
from support.native_runs import make_embedding_infinite


@pytest.mark.parametrize("rows", [512, 16])
@pytest.mark.parametrize("kv_dtype", ["fp16", "int8", "int4", "k8v4"])
def test_logits_that_are_not_finite(
    make_grid: Callable[[tuple[str, KvDtype]], Grid], kv_dtype: KvDtype, rows: int
) -> None:
    """It is found out after its blocks were published, and some were shared already."""
    grid = Grid(EngineModel(make_grid(("qwen2", "fp16")).model.path), kv_dtype)
    bad = grid.vocab_size - 1
    make_embedding_infinite(grid.model.llm, bad)
    beginning = grid.prompt(1, 40)
    fine = [grid.spec(beginning + grid.prompt(i, 4), seed=i, temperature=0.7) for i in range(4)]
    others = [spec for spec in grid.subjects if bad not in spec.prompt]
    assert len(others) > 4
    run = grid.run(max_num_batched_tokens=rows)
    (ends,) = run.submit(grid.spec((*beginning, bad, *grid.prompt(9, 25))))
    (alike,) = run.submit(grid.spec((*beginning, bad, *grid.prompt(8, 5))))
    del run.submitted[:]
    for spec in [*fine, *others]:
        run.submit(spec)
        run.step()
    grid.finish_and_check(run)
    for request in (ends, alike):
        assert "not finite" in (run.outcome(request).problem or "")
    run.submit(fine[0])
    grid.finish_and_check(run)


def test_deadlines(tiny: Grid) -> None:
    """In the queue, within a prompt and while it is answered."""
    run = tiny.run(max_num_batched_tokens=60)
    late = []
    for i in range(12):
        spec = tiny.spec(tiny.prompt(i, 30), seed=i, temperature=1.0)
        late += run.engine.make_request(spec.prompt, spec.params, deadline=1.0 + 2 * i)
        run.add(spec, late[-1:])
    del run.submitted[:]
    for spec in tiny.subjects:
        run.submit(spec)
        run.step()
    tiny.finish_and_check(run)
    assert all(request.finish_reason == "timeout" for request in late)
    assert len({len(request.output_token_ids) for request in late}) > 3
