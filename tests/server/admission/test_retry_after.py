"""Whoever comes again when he was told to is let in: the production scheduler on a virtual clock.

A burst of clients meets a server that has answered a hundred requests before. Whoever is refused
comes again after exactly the seconds he was told.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from itertools import cycle
from random import Random
from statistics import mean, median

import pytest

from farthing.openai_protocol.errors import RequestError
from farthing.server.admission.admission import Admission
from farthing.server.admission.forecasting import SLACK
from farthing.server.admission.limits import QueueLimits
from farthing.server.admission.numbers import Refusal
from farthing.server.admission.promises import MOST_WAIT, Promises
from farthing.server.admission.step_times import LinearStepTimes
from server.admission.simulated_server import Client, SimulatedServer, noisy_cost

WARM, BURST = 100, 220
LIMITS = QueueLimits(64, 262_144)

Length = Callable[[Random], int]

LENGTHS: dict[str, Length] = {
    "exponential": lambda rng: max(1, int(rng.expovariate(1 / 150))),
    "heavy tail": lambda rng: max(1, int(rng.lognormvariate(4.5, 1.0))),
}

MANY_ANSWERS = {  # prompts, and choices of each
    "choices": ((1, 4),),
    "singles and choices": ((1, 1), (1, 1), (1, 1), (1, 4), (1, 8), (1, 16)),
    "singles and lists": ((1, 1), (1, 1), (1, 1), (8, 4)),
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
            len(self.errors) >= 50
            and median(self.errors) < 1
            and median(self.place_errors) < 0.25
            and mean(self.visits) < 1.75
        )


@cache
def play(
    length: Length,
    seed: int,
    admission: Callable[..., Admission] = Admission,
    *,
    limits: QueueLimits = LIMITS,
    prompts: tuple[int, int] = (20, 400),
    prompt_row: float = 0.002,  # seconds
    asks: tuple[tuple[int, int], ...] = ((1, 1),),  # prompts, and choices of each, in turn
    apart: float = 0.2,  # seconds, those before the burst
    burst: int = BURST,
    num_blocks: int = 4096,
    whole_seconds: bool = False,
) -> Told:
    rng = Random(seed)
    server = SimulatedServer(
        limits,
        noisy_cost(Random(seed + 1), c=prompt_row),
        rng=rng,
        num_blocks=num_blocks,
        admission=admission,
    )

    kinds = cycle(asks)

    def one() -> Client:
        num_prompts, choices = next(kinds)
        lengths = [length(rng) for _ in range(num_prompts * choices)]
        size = rng.randint(*prompts)
        return Client(size, lengths, 512, num_prompts, whole_seconds=whole_seconds)

    for i in range(WARM):
        server.arrive(one(), i * apart)
    clients = [one() for _ in range(burst)]
    for i, each in enumerate(clients):
        server.arrive(each, WARM * apart + 5 + i * 1e-4)
    server.run()
    return Told(server, clients)


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


def test_they_are_where_tokens_are_what_is_short() -> None:
    told = play(
        LENGTHS["exponential"],
        1,
        limits=QueueLimits(64, 60_000),
        prompts=(500, 4000),
        prompt_row=0.0002,
        apart=0.8,
        burst=150,
    )
    assert told.true
    assert told.server.admission.numbers.refusals.keys() == {Refusal.QUEUE_TOKENS}
    assert 55_000 < told.server.most_tokens <= 60_000


def test_they_are_where_memory_is_what_is_short() -> None:
    """How many run is then foretold by how many do now, which is less exact."""
    told = play(LENGTHS["exponential"], 1, num_blocks=300, apart=0.5)
    assert median(told.errors) < 1
    assert mean(told.visits) < 1.75
    assert median(told.place_errors) < 0.5
    assert told.server.engine.scheduler.num_preemptions > 20


@pytest.mark.parametrize("asks", MANY_ANSWERS.values(), ids=MANY_ANSWERS)
def test_they_are_for_requests_of_many_answers(asks: tuple[tuple[int, int], ...]) -> None:
    """Whoever asks for one and whoever asks for many, beside each other."""
    # What the mean request takes: nobody is refused before the burst.
    apart = mean(prompts * (0.42 + 0.29 * choices) for prompts, choices in asks)
    told = play(LENGTHS["exponential"], 1, asks=asks, apart=apart, burst=120)
    print(
        f"{asks}: median |actual - told| {median(told.errors):.2f} s, of the place "
        f"{median(told.place_errors):.0%}, visits {mean(told.visits):.2f}"
    )
    assert median(told.errors) < 1
    assert median(told.place_errors) < 0.25
    assert mean(told.visits) < 1.75


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


def stream_of_clients(*, counts: bool) -> list[Client]:
    """Half as many again as can be served come for three minutes; those who were refused."""
    rng = Random(1)
    server = SimulatedServer(LIMITS, noisy_cost(Random(2)), rng=rng)
    at = 0.0
    while at < 180:
        at += rng.expovariate(2.2)
        length = LENGTHS["exponential"](rng)
        server.arrive(Client(rng.randint(20, 400), [length], 512, counts=counts), at)
    server.run()
    assert not any(math.isnan(client.ended) for client in server.clients)
    return [client for client in server.clients if client.promised]


def test_newcomers_leave_the_places_of_those_who_were_told_to_come() -> None:
    """Two retries are what clients of OpenAI's kind make."""

    def share(refused: list[Client]) -> float:
        return sum(len(client.promised) <= 2 for client in refused) / len(refused)

    counting, silent = stream_of_clients(counts=True), stream_of_clients(counts=False)
    assert min(len(counting), len(silent)) > 100
    assert share(counting) > 0.9 > share(silent)


def test_a_burst_as_large_as_the_queue_and_what_runs_is_served_without_refusal() -> None:
    """The queue takes 64; those who begin in the first steps make room for 32 more."""
    rng = Random(1)
    server = SimulatedServer(LIMITS, noisy_cost(Random(2)), rng=rng)
    for i in range(96):
        # The first step begins with one client, the second with those who have come meanwhile.
        late = 3.0 + i * 1e-4 if i >= 64 else i * 1e-4
        server.arrive(Client(50, [20], 100), late)
    server.run()
    assert not server.admission.numbers.refusals
    assert server.most_waiting == 64


def test_where_everything_is_known_places_are_free_when_it_is_said() -> None:
    """Steps without noise and answers of known length: the simulation ahead is the scheduler's."""
    rng = Random(2)
    server = SimulatedServer(LIMITS, lambda d, p: 0.03 + 0.001 * d + 0.002 * p, rng=rng)

    def one() -> Client:
        limit = rng.randint(5, 300)
        return Client(rng.randint(20, 400), [10**6], limit, ignore_eos=True)

    for i in range(60):
        server.arrive(one(), i * 0.2)
    burst = [one() for _ in range(150)]
    for i, each in enumerate(burst):
        server.arrive(each, 60 + i * 1e-4)
    server.run()
    refused = [client for client in burst if client.promised]
    freed = [time for time in server.freed if time > 1060]
    errors = [
        abs(client.promised[0] / (1 + SLACK) / (freed[i] - client.came[0]) - 1)
        for i, client in enumerate(refused[:64])  # in place of those who wait already
    ]
    assert len(errors) == 64
    assert median(errors) < 0.02
