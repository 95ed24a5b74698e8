"""Whoever comes again when he was told to is let in: the production scheduler on a virtual clock.

A burst of clients meets a server that has answered a hundred requests before. Whoever is refused
comes again after exactly the seconds he was told.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from statistics import mean, median

import pytest

from farthing.openai_protocol.errors import RequestError
from farthing.server.admission.admission import MOST_WAIT, Admission
from farthing.server.admission.limits import QueueLimits
from farthing.server.admission.numbers import Refusal
from farthing.server.admission.promises import Promises
from farthing.server.admission.step_times import LinearStepTimes
from server.admission.simulated_server import Client, SimulatedServer, noisy_cost

WARM, BURST = 100, 220

Length = Callable[[Random], int]

LENGTHS: dict[str, Length] = {
    "exponential": lambda rng: max(1, int(rng.expovariate(1 / 150))),
    "heavy tail": lambda rng: max(1, int(rng.lognormvariate(4.5, 1.0))),
}


class Told:
    """What those of a burst who were refused were told, and what came of it."""

    def __init__(self, server: SimulatedServer, burst: list[Client]) -> None:
        self.server = server
        self.refused = [c for c in burst if c.promised]
        within = [c for c in self.refused if c.promised[0] < MOST_WAIT]
        start = burst[0].came[0]
        freed = [time for time in server.freed if time > start]
        places = [freed[i] - c.came[0] for i, c in enumerate(self.refused)]
        self.place_errors = [
            abs(place - c.promised[0]) / place
            for place, c in zip(places, self.refused, strict=True)
            if c.promised[0] < MOST_WAIT
        ]
        self.errors = [c.came[-1] - c.came[0] - c.promised[0] for c in within]
        self.visits = [len(c.came) - 1 for c in within]
        self.seconds = max(c.ended for c in burst) - start

    @property
    def true(self) -> bool:
        """Whether the times were."""
        return (
            len(self.errors) >= 100
            and median(self.errors) < 1
            and median(self.place_errors) < 0.25
            and mean(self.visits) < 1.75
        )


def play(
    length: Length,
    seed: int,
    admission: Callable[..., Admission] = Admission,
    **client: bool,
) -> Told:
    rng = Random(seed)
    server = SimulatedServer(
        QueueLimits(64, 262_144), noisy_cost(Random(seed + 1)), rng=rng, admission=admission
    )

    def one() -> Client:
        return Client(rng.randint(20, 400), [length(rng)], 512, **client)

    for i in range(WARM):
        server.arrive(one(), i * 0.2)
    burst = [one() for _ in range(BURST)]
    for i, each in enumerate(burst):
        server.arrive(each, WARM * 0.2 + 5 + i * 1e-4)
    server.run()
    return Told(server, burst)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("kind", LENGTHS)
def test_times_told_are_true(kind: str, seed: int) -> None:
    told = play(LENGTHS[kind], seed)
    print(  # pytest -s: the figures of docs/decisions/admission.md
        f"{kind}: median |actual - told| {median(told.errors):.2f} s, of the place "
        f"{median(told.place_errors):.0%}, visits {mean(told.visits):.2f}"
    )
    assert told.true
    assert told.server.most_waiting == 64
    assert all(c.ended > c.came[0] for c in told.server.clients)


def test_they_are_for_clients_that_wait_whole_seconds_too() -> None:
    told = play(LENGTHS["exponential"], 3, whole_seconds=True)
    assert mean(told.visits) < 1.75
    assert median(told.errors) < 1.5  # a second of it is the rounding


class ConstantSecond(Admission):
    """Says one second to all."""

    def _refused(self, reason: Refusal, code: str, message: str, wait: float) -> RequestError:
        return super()._refused(reason, code, message, 1.0)


class AllToTheSamePlace(Admission):
    """Promises the next place to everyone."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self._promises = OnePlace()


class OnePlace(Promises):
    def place(self, *, again: bool) -> int:
        return 1


class AlwaysTwoMinutes(Admission):
    """Says the longest time there is."""

    def _refused(self, reason: Refusal, code: str, message: str, wait: float) -> RequestError:
        return super()._refused(reason, code, message, MOST_WAIT - 1)


class HalfTheTime(LinearStepTimes):
    """Thinks that steps take half as long as they do."""

    def predict(self, decode_rows: int, prefill_rows: int) -> float:
        return super().predict(decode_rows, prefill_rows) / 2


def half_the_time(*args: object, **kwargs: object) -> Admission:
    return Admission(*args, **kwargs, steps=HalfTheTime())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong", [ConstantSecond, AllToTheSamePlace, AlwaysTwoMinutes, half_the_time]
)
def test_wrong_times_are_found_to_be_wrong(wrong: Callable[..., Admission]) -> None:
    assert not play(LENGTHS["exponential"], 1, wrong).true


def test_waiting_as_told_leaves_the_engine_no_less_to_do() -> None:
    """All are served as soon as if they had asked every second; two minutes each would show."""
    told = play(LENGTHS["exponential"], 1)
    eager = play(LENGTHS["exponential"], 1, ConstantSecond)
    assert told.seconds < 1.1 * eager.seconds
    assert play(LENGTHS["exponential"], 1, AlwaysTwoMinutes).seconds > 1.1 * eager.seconds
