"""The simulation can fail: some seed finds each fault that is planted in the production code."""

from __future__ import annotations

from typing import Any

import pytest

from farthing.engine.engine import EngineConfig
from farthing.engine.request import RequestState
from farthing.engine.schedule import Schedule
from farthing.engine.scheduler import Scheduler, SchedulerConfig
from farthing.sampling.params import SamplingParams
from simulation.checking_runner import BEFORE_COPIES
from simulation.driver import calm, check_seed, simulate
from simulation.faults import FAULTS, Fault, copies_are_forgotten
from simulation.history import FIRST_WORD
from simulation.world import Submission, World

MOST_SEEDS = 400


def first_found(scheduling: dict[str, Any]) -> int | None:
    """The first seed that fails."""
    for seed in range(MOST_SEEDS):
        try:
            simulate(seed, **scheduling)
        except Exception:
            return seed
    return None


@pytest.mark.parametrize(("plant", "scheduling"), FAULTS, ids=[f[0].__name__ for f in FAULTS])
def test_the_simulation_finds(
    plant: Fault, scheduling: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert first_found(scheduling) is not None, f"not in {MOST_SEEDS} seeds"


def test_a_failing_seed_says_how_it_is_played_again(monkeypatch: pytest.MonkeyPatch) -> None:
    copies_are_forgotten(monkeypatch)
    seed = first_found({})
    assert seed is not None
    with pytest.raises(AssertionError) as failure:
        check_seed(seed)
    assert failure.value.__notes__ == [
        f"seed {seed}, played again by: PYTHONPATH=tests python -m simulation --seeds {seed}"
    ]


def a_batch_whose_copies_are_not_made() -> None:
    """One request waits with a copied block while another one's prompt is read; the pass breaks."""
    scheduling = SchedulerConfig(max_num_seqs=2, max_num_batched_tokens=16, batching="static")
    world = World(EngineConfig(max_model_len=100, scheduler=scheduling), num_blocks=12)
    prompt = tuple(range(FIRST_WORD, FIRST_WORD + 32))
    params = SamplingParams(seed=1, max_tokens=3, ignore_eos=True)
    world.submit(Submission(prompt, params))
    while world.unfinished:
        world.step()
    world.submit(Submission(prompt, params))
    world.submit(Submission(prompt[::-1] * 2, params))
    world.break_off(BEFORE_COPIES)
    assert world.step() == []
    assert world.seen["broken pass with copies"] == 1
    calm(world)


def test_copies_of_a_broken_pass_are_made_later(monkeypatch: pytest.MonkeyPatch) -> None:
    a_batch_whose_copies_are_not_made()

    def by_rows(self: Scheduler, schedule: Schedule) -> None:
        for rows in schedule.rows:
            if rows.request.state is RequestState.RUNNING:
                self.preempt(rows.request)

    monkeypatch.setattr(Scheduler, "roll_back", by_rows)
    with pytest.raises(AssertionError, match=r"reads at position 16, block .*: nothing"):
        a_batch_whose_copies_are_not_made()
