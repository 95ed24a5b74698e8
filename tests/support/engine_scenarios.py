"""Ways to have requests computed together, each ending in the check of every one of them.

What they are about is asserted too: that there was something to preempt, to find, to copy.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from farthing.engine.block_pool import blocks_for
from farthing.engine.request import Request, RequestState
from support.engine_grid import BrokenOffError, EngineRun, Grid
from support.engine_requests import Spec


def among(
    grid: Grid, size: int, seed: int, *, first: int | None = None, **settings: Any
) -> EngineRun:
    """Subjects and random neighbours, ``size`` in all, in random order and arriving over time.

    Some neighbours are aborted, in whatever state they are then. ``first``: the only subject.
    """
    rng = random.Random(seed)
    own = list(grid.subjects) if first is None else [grid.subjects[first]]
    own = rng.sample(own, min(len(own), -(-size // 2)))
    others = [grid.neighbour(rng) for _ in range(size - len(own))]
    arriving: list[tuple[int, Spec, int | None]] = [(rng.randrange(6), s, None) for s in own]
    for each in others:
        arrival = rng.randrange(6)
        leaves = arrival + rng.randrange(12) if rng.random() < 0.3 else None
        arriving.append((arrival, each, leaves))
    rng.shuffle(arriving)
    run = grid.run(**{"num_blocks": 10 * size, **settings})
    leaving: list[tuple[int, Request]] = []
    for step in range(6):
        for arrival, each, leaves in arriving:
            if arrival == step:
                requests = run.submit(each)
                if leaves is not None:
                    leaving += [(leaves, request) for request in requests]
        _abort(run, leaving)
        run.step()
    return grid.finish_and_check(run, lambda: _abort(run, leaving))


def _abort(run: EngineRun, leaving: list[tuple[int, Request]]) -> None:
    for leaves, request in leaving:
        if leaves <= run.now:
            run.engine.abort(request)


def together(
    grid: Grid, after: Callable[[EngineRun], None] = lambda run: None, **settings: Any
) -> EngineRun:
    """All subjects at once; ``after`` is called after each step."""
    run = grid.run(**settings)
    for each in grid.subjects:
        run.submit(each)
    return grid.finish_and_check(run, lambda: after(run))


def one_after_another(grid: Grid, **settings: Any) -> EngineRun:
    """The subjects in one engine, each when the last has ended."""
    run = grid.run(**settings)
    for each in grid.subjects:
        run.submit(each)
        run.finish()
    grid.check(run)
    return run


def preempted(grid: Grid, every: int, *, whole_batch: bool, **settings: Any) -> EngineRun:
    """All subjects; after every so many steps a random one, or all, lose their memory."""
    rng = random.Random(every)

    def preempt(run: EngineRun) -> None:
        if run.now % every == 0 and run.scheduler.running:
            running = [*run.scheduler.running]
            for request in running if whole_batch else [rng.choice(running)]:
                run.preempted_after.append(len(request.output_token_ids))
                run.scheduler.preempt(request)
            run.engine.check_integrity()

    run = together(grid, preempt, **settings)
    assert run.scheduler.num_preemptions >= run.now // every - 1 > 0
    return run


def broken_off(grid: Grid, passes: set[int], *, over: bool, **settings: Any) -> EngineRun:
    """All subjects; some passes raise before they are computed, or behind it."""

    def fail(number: int, is_over: bool) -> None:
        if number in passes and is_over is over:
            raise BrokenOffError

    run = grid.run(**settings)
    run.runner.fail = fail
    for each in grid.subjects:
        run.submit(each)
    grid.finish_and_check(run)
    assert run.broken_off == len(passes)
    return run


def in_small_pool(grid: Grid, specs: list[Spec], spare: int, **settings: Any) -> EngineRun:
    """``specs`` at once, with memory for the largest and ``spare`` blocks."""
    most = max(blocks_for(len(s.prompt) + (s.params.max_tokens or 0) - 1) for s in specs)
    run = grid.run(num_blocks=most + spare, **settings)
    for each in specs:
        run.submit(each)
    return grid.finish_and_check(run)


def one_after_the_other(grid: Grid, first: Spec, second: Spec, **settings: Any) -> Request:
    """``second`` when ``first`` has ended; returns its request."""
    run = grid.run(**settings)
    run.submit(first)
    run.finish()
    (request, *_) = run.submit(second)
    grid.finish_and_check(run)
    return request


def choices(
    grid: Grid, spec: Spec, after: Callable[[EngineRun], None] = lambda run: None, **settings: Any
) -> EngineRun:
    """Several choices of one prompt, beside a neighbour."""
    run = grid.run(**settings)
    requests = run.submit(spec)
    assert len(requests) == spec.params.n > 1
    run.submit(grid.subjects[0])
    grid.finish_and_check(run, lambda: after(run))
    return run


def anyhow(grid: Grid, seed: int) -> EngineRun:
    """Random settings, and everything that may happen at any step."""
    rng = random.Random(seed)
    contiguous = rng.random() < 0.2
    rows = rng.choice((1, 5, 16, 40, 512))
    settings: dict[str, Any] = {
        "num_threads": rng.randint(1, 3),
        "prefix_caching": rng.random() < 0.75,
        "max_num_batched_tokens": rows,
        "max_num_seqs": rng.choice((1, 3, 8, 40)),
        "max_prefill_chunk": rng.choice((None, 1, 16)),
        "batching": "static" if rng.random() < 0.2 else "continuous",
        "fair_share": rng.random() < 0.5,
        "max_preemptions": rng.choice((0, 1, 1000)),
        "kv": "contiguous" if contiguous else "paged",
        "max_model_len": 128,
        "num_blocks": rng.choice((24, 64)) if contiguous else rng.choice((9, 14, 25, 80)),
        "every_row": rng.random() < 0.5,
    }
    if rows >= 40 and rng.random() < 0.2:
        settings["use_cache"] = False
        settings["max_num_batched_tokens"] = 512
    run = grid.run(**settings)
    shared = grid.subjects[4].prompt
    specs = [*grid.subjects, *(grid.neighbour(rng) for _ in range(6))]
    specs += [grid.continued(rng, shared[: rng.randrange(len(shared))]) for _ in range(4)]
    rng.shuffle(specs)
    breaks = {rng.randrange(40) for _ in range(2)}

    def fail(number: int, over: bool) -> None:
        if number in breaks and over is (number % 2 == 0):
            breaks.remove(number)
            raise BrokenOffError

    run.runner.fail = fail
    waiting = [*specs]
    for _ in range(10_000):
        if waiting and (rng.random() < 0.4 or not run.engine.has_work):
            run.submit(waiting.pop())
        if not run.engine.has_work:
            break
        run.step()
        if rng.random() < 0.1 and settings["batching"] == "continuous" and run.scheduler.running:
            run.scheduler.preempt(rng.choice(run.scheduler.running))
        if rng.random() < 0.05:
            open_ones = [request for _, request in run.submitted if not request.finished]
            if open_ones:
                run.engine.abort(rng.choice(open_ones))
    assert not run.engine.has_work
    assert all(request.state is RequestState.FINISHED for _, request in run.submitted)
    grid.check(run)
    return run
