"""Seeds of the simulation: the same ones always, and new ones in the slow tests."""

from __future__ import annotations

import secrets
import subprocess
import sys
import time
from collections import Counter

import pytest

from simulation.driver import check_seed, simulate

CHUNK = 100
SLOW_SECONDS = 170


@pytest.mark.parametrize("first", range(0, 2000, CHUNK))
def test_nothing_is_lost_stale_or_late(first: int) -> None:
    for seed in range(first, first + CHUNK):
        check_seed(seed)


@pytest.mark.slow
def test_nothing_is_lost_stale_or_late_in_new_seeds() -> None:
    first = secrets.randbits(48)
    ended = time.monotonic() + SLOW_SECONDS
    seed = first
    while time.monotonic() < ended:
        check_seed(seed)
        seed += 1
    assert seed - first >= 1000


def test_a_seed_is_the_same_run_every_time() -> None:
    first, second = simulate(7), simulate(7)
    assert first.ended == second.ended
    assert (first.seen, first.steps, first.now) == (second.seen, second.steps, second.now)


def test_a_seed_is_the_same_run_in_another_process() -> None:
    world = simulate(11)
    run = subprocess.run(
        [sys.executable, "-m", "simulation", "--seeds", "11"],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": "77"},
    )
    assert f"{world.steps} steps" in run.stdout
    assert str(dict(world.seen)) in run.stdout


def test_what_may_go_wrong_happens() -> None:
    seen: Counter[str] = Counter()
    for seed in range(250):
        world = simulate(seed)
        seen += world.seen
        seen.update(world.ended)
    for name in (
        *("abort deferred", "abort waiting", "abort reading", "abort decoding", "abort preempted"),
        *("preempt reading", "preempt decoding", "preempted for memory", "refused"),
        *("copy", "broken pass", "broken pass with copies", "discarded row"),
        *("block cached", "block uncached", "prefix found", "whole prompt found"),
        *("stop", "length", "timeout", "error", "abort"),
    ):
        assert seen[name] >= 10, f"{name}: {seen[name]} times"
