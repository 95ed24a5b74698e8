"""Where larger batches cease to pay, and steps that are really run."""

from __future__ import annotations

from pathlib import Path

import pytest

from farthing.engine.model_loader import LoadOptions, load_model
from farthing.evaluation.speed import BATCHES, CACHED_TOKENS, STEPS, knee, measure_speed


@pytest.mark.parametrize(
    ("throughputs", "index"),
    [
        ([10.0], 0),
        ([10.0, 12.0], 1),
        ([10.0, 11.9], 0),
        ([1.0, 1.9, 3.4, 5.0, 6.0, 6.54], 4),  # 16 to 32 gives 9 %
        ([1.0, 1.1, 5.0], 0),  # what comes after does not count
        ([1.0, 2.0, 1.5], 1),
    ],
)
def test_the_knee_is_the_last_doubling_that_paid(throughputs: list[float], index: int) -> None:
    assert knee(throughputs) == index


def test_steps_are_timed_up_to_the_first_that_was_not_worth_it(reference_model: Path) -> None:
    loaded = load_model(reference_model, LoadOptions(kv_cache_tokens=CACHED_TOKENS))
    told: list[int] = []
    speed = measure_speed(loaded, told.append)
    assert told == [step.batch for step in speed.steps] == list(BATCHES[: len(told)])
    for step in speed.steps:
        assert 0 < step.least <= step.seconds <= step.most
        assert step.steps >= STEPS
    assert speed.alone.batch == 1
    at = speed.steps.index(speed.knee)
    assert at in (len(speed.steps) - 2, len(speed.steps) - 1)
    if at == len(speed.steps) - 1:
        assert speed.knee.batch == BATCHES[-1]
