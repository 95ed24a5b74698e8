"""When to come again, while the model is not there yet."""

from __future__ import annotations

import pytest

from farthing.server.life_cycle import LEAST_RETRY_SECONDS, LOADING_RETRY_SECONDS, LifeCycle


class Clock:
    """The monotonic clock, in seconds."""

    now = 1000.0

    def monotonic(self) -> float:
        """The time that the test says."""
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("farthing.server.life_cycle.time", clock)
    return clock


def told(life: LifeCycle) -> tuple[str, float | None]:
    """The message and the seconds after which to come again."""
    error = life.unavailable()
    assert (error.status, error.code) == (503, "loading")
    return str(error), error.retry_after


def test_a_download_goes_on_as_fast_as_it_did(clock: Clock) -> None:
    life = LifeCycle(60.0)
    life.downloading(2_000_000_000, 8_000_000_000)  # so much is here from another time
    at_first = "the model is being downloaded (25% of 8.00 GB)"
    assert told(life) == (at_first, LOADING_RETRY_SECONDS)
    clock.now += 10
    life.downloading(4_000_000_000, 8_000_000_000)
    assert told(life) == ("the model is being downloaded (50% of 8.00 GB)", 20.0)
    clock.now += 10  # nothing comes: it takes longer
    assert told(life)[1] == 40.0
    life.downloading(7_999_999_999, 8_000_000_000)
    assert told(life)[1] == LEAST_RETRY_SECONDS


def test_another_source_begins_anew(clock: Clock) -> None:
    life = LifeCycle(60.0)
    life.downloading(0, 100)
    clock.now += 10
    life.downloading(90, 100)
    life.downloading(0, 100)
    assert told(life) == ("the model is being downloaded (0% of 0.00 GB)", LOADING_RETRY_SECONDS)
    clock.now += 1
    life.downloading(25, 100)
    assert told(life)[1] == 3.0


def test_loading_begins_when_the_model_is_here(clock: Clock) -> None:
    loading = (0, 0)
    life = LifeCycle(60.0, lambda: loading)
    life.downloading(1, 2)
    clock.now += 100
    life.downloaded()
    assert told(life) == ("the model is being loaded (0%)", LOADING_RETRY_SECONDS)
    clock.now += 2
    loading = (25, 100)
    assert told(life) == ("the model is being loaded (25%)", 6.0)
