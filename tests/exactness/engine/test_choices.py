"""Each of several choices of a prompt gets what it would get as the only one."""

from __future__ import annotations

import random

import pytest

from support.engine_grid import EngineRun, Grid
from support.engine_requests import Spec
from support.engine_scenarios import choices

SAMPLED = {"temperature": 1.1, "seed": 8, "logprobs": 1}


def of_length(grid: Grid, length: int, n: int = 4, **params: object) -> Spec:
    return grid.spec(grid.prompt(length, length), n=n, **{**SAMPLED, **params})


@pytest.mark.parametrize("prefix_caching", [True, False])
@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 33, 48])
def test_choices_share_their_prompt(tiny: Grid, length: int, prefix_caching: bool) -> None:
    spec = of_length(tiny, length)
    run = choices(tiny, spec, prefix_caching=prefix_caching)
    requests = [request for each, request in run.submitted if each is spec]
    assert len({tuple(request.output_token_ids) for request in requests}) == len(requests)
    assert [r.num_cached_tokens for r in requests] == [0] + [length - 1] * 3
    assert run.runner.num_copies == 3


@pytest.mark.parametrize("params", [{"temperature": 0}, {"prompt_logprobs": 1}, {"top_k": 9}])
def test_of_every_kind(grid: Grid, params: dict[str, object]) -> None:
    choices(grid, of_length(grid, 70, **params))


def test_found_in_the_prefix_cache(tiny: Grid) -> None:
    run = choices(tiny, of_length(tiny, 48))
    run.submit(of_length(tiny, 48, seed=9))
    run.submit(of_length(tiny, 48, n=2, temperature=0))
    tiny.finish_and_check(run)


@pytest.mark.parametrize("settings", [{}, {"max_num_seqs": 1}, {"max_num_seqs": 2}])
@pytest.mark.parametrize("prefix_caching", [True, False])
def test_the_first_ends_before_the_others_begin(
    tiny: Grid, prefix_caching: bool, settings: dict[str, int]
) -> None:
    """With one token it ends in the step that stores its prompt; alone it runs to its end."""
    for max_tokens in (1, None):
        spec = tiny.spec(tiny.prompt(5, 37), max_tokens, n=3, **SAMPLED)
        choices(tiny, spec, prefix_caching=prefix_caching, **settings)


@pytest.mark.parametrize("which", [0, 1, 3])
@pytest.mark.parametrize("step", [0, 1, 2, 3, 6])
def test_one_is_aborted(tiny: Grid, step: int, which: int) -> None:
    """In the queue, within the prompt, which takes three steps, and while all are decoding."""
    run = tiny.run(
        prefix_caching=(step + which) % 2 == 0, max_num_batched_tokens=20, max_num_seqs=8
    )
    requests = run.submit(of_length(tiny, 41))
    run.submit(tiny.subjects[1])
    for _ in range(step):
        run.step()
    run.engine.abort(requests[which])
    run.engine.check_integrity()
    tiny.finish_and_check(run)
    assert [r.finish_reason for r in requests].count("length") == 3


@pytest.mark.parametrize("prefix_caching", [True, False])
def test_preempted_and_resumed(tiny: Grid, prefix_caching: bool) -> None:
    rng = random.Random(2)

    def preempt(run: EngineRun) -> None:
        if run.now % 2 and run.scheduler.running:
            run.scheduler.preempt(rng.choice(run.scheduler.running))

    for length in (16, 29):
        run = choices(tiny, of_length(tiny, length), preempt, prefix_caching=prefix_caching)
        assert run.scheduler.num_preemptions > 5


@pytest.mark.parametrize("prefix_caching", [True, False])
def test_in_memory_that_is_too_small_for_all(tiny: Grid, prefix_caching: bool) -> None:
    run = tiny.run(num_blocks=7, prefix_caching=prefix_caching, max_preemptions=3)
    for length in (33, 48, 16):
        run.submit(of_length(tiny, length))
    tiny.finish_and_check(run)
