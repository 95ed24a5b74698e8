"""Nobody waits for longer than the rules say: short prompts, long ones, streams, and users."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import pytest

from farthing.engine import scheduler
from farthing.engine.engine import EngineConfig
from farthing.engine.fair_share import INPUT_WEIGHT, OUTPUT_WEIGHT
from farthing.engine.kv_manager import KvManager
from farthing.engine.request import Request, RequestState
from farthing.engine.schedule import ScheduledRows, next_rows
from farthing.engine.scheduler import SchedulerConfig
from farthing.sampling.params import SamplingParams
from simulation import world as world_module
from simulation.driver import calm
from simulation.history import FIRST_WORD
from simulation.world import Submission, Watched, World

SEEDS = range(16)


def words(rng: Random, count: int) -> tuple[int, ...]:
    return tuple(FIRST_WORD + rng.randrange(8) for _ in range(count))


def asked(
    prompt: tuple[int, ...], max_tokens: int, user: str = "", priority: int = 0, n: int = 1
) -> Submission:
    params = SamplingParams(seed=1, n=n, max_tokens=max_tokens, ignore_eos=True)
    return Submission(prompt, params, user=user, priority=priority)


def ample_world(scheduling: SchedulerConfig) -> World:
    return World(EngineConfig(max_model_len=2000, scheduler=scheduling), 2000)


def in_order(kv: KvManager, reading: Sequence[Request], budget: int) -> list[ScheduledRows]:
    """Rows of prompts in the order in which they stand: what is not done."""
    rows = []
    for request in reading:
        count = min(request.num_remaining_tokens, budget)
        if count:
            rows.append(next_rows(request, count))
            budget -= count
    return rows


@pytest.mark.parametrize("seed", SEEDS)
def test_short_prompts_behind_long_ones_take_half_of_every_chunk(seed: int) -> None:
    rng = Random(seed)
    chunk = rng.choice((2, 7, 16, 32, 64, 200))
    world = ample_world(
        SchedulerConfig(max_num_seqs=12, max_num_batched_tokens=chunk + 12, max_prefill_chunk=chunk)
    )
    for _ in range(rng.randrange(4)):
        world.submit(asked(words(rng, 3), 500, user="stream"))
    world.step()
    long = words(rng, min(chunk * 30, 1900))
    user = rng.choice(("", "other"))
    for i in range(rng.randint(1, 4)):
        world.submit(asked(words(rng, i) + long[: len(long) - 9 * i], 3, user=user))
    for _ in range(rng.randrange(4)):
        world.step()
    prefix = long[: rng.choice((0, 0, 16, 40))][: chunk * 4]
    lengths = sorted(len(prefix) + rng.randint(1, 2 * chunk) for _ in range(rng.randint(1, 3)))
    shorts = [world.submit(asked(prefix + words(rng, n - len(prefix)), 2))[0] for n in lengths]
    started = world.steps
    # What another computes already is taken one pass later.
    most = -(-sum(lengths) // (chunk // 2)) + bool(prefix)
    while not all(short.tokens for short in shorts):
        world.step()
        assert world.steps - started <= most, "a short prompt waits for a long one"
    calm(world)


@pytest.mark.parametrize("seed", range(20))
def test_a_long_prompt_is_read_while_short_ones_keep_coming(seed: int) -> None:
    rng = Random(seed)
    chunk = rng.choice((1, 2, 16, 33))
    world = ample_world(SchedulerConfig(max_num_seqs=8, max_num_batched_tokens=chunk + 7))
    [long] = world.submit(asked(words(rng, 30 * chunk), 4))
    steps = 0
    while not long.tokens:
        while len(world.unfinished) < 8:
            world.submit(asked(words(rng, rng.randint(1, chunk)), rng.randint(1, 9)))
        world.step()
        steps += 1
        most = 30 * chunk // ((chunk + 1) // 2)
        assert steps <= most, "a long prompt waits for short ones"
    calm(world)


def play(test: Callable[[int], None], seeds: range) -> None:
    for seed in seeds:
        test(seed)


def test_short_prompts_would_wait_if_the_oldest_took_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scheduler, "divide_prefill", in_order)
    monkeypatch.setattr(world_module, "check_progress", lambda *standing: None)
    with pytest.raises(AssertionError, match="a short prompt waits for a long one"):
        play(test_short_prompts_behind_long_ones_take_half_of_every_chunk, SEEDS)


def test_a_long_prompt_would_wait_if_the_shortest_took_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def shortest(kv: KvManager, reading: Sequence[Request], budget: int) -> list[ScheduledRows]:
        return in_order(kv, sorted(reading, key=lambda r: r.num_remaining_tokens), budget)

    monkeypatch.setattr(scheduler, "divide_prefill", shortest)
    monkeypatch.setattr(world_module, "check_progress", lambda *standing: None)
    with pytest.raises(AssertionError, match="a long prompt waits for short ones"):
        play(test_a_long_prompt_is_read_while_short_ones_keep_coming, range(20))


def flooded(fair_share: bool, seed: int) -> int:
    """Requests of a user who floods that begin before one of somebody else's, at most."""
    rng = Random(seed)
    seqs = rng.choice((1, 2, 4))
    world = ample_world(
        SchedulerConfig(max_num_seqs=seqs, max_num_batched_tokens=64, fair_share=fair_share)
    )
    for _ in range(25):
        world.submit(asked(words(rng, rng.randint(10, 60)), rng.randint(1, 20), user="flood"))
    for _ in range(rng.randrange(9)):
        world.step()
    most = 0
    for _ in range(4):
        [mine] = world.submit(asked(words(rng, 5), 2, user="mine"))
        most = max(most, _begun_before(world, mine, "flood"))
        while not mine.request.finished:
            world.step()
        for _ in range(rng.randrange(3)):
            world.step()
    calm(world)
    return most


@pytest.mark.parametrize("seed", SEEDS)
def test_a_user_who_floods_goes_once_at_most_before_one_who_does_not(seed: int) -> None:
    # Once: when the other has been served as much by then.
    assert flooded(True, seed) <= 1


def test_without_fair_share_a_flood_goes_first() -> None:
    assert max(flooded(False, seed) for seed in range(4)) > 10


@pytest.mark.parametrize("seed", range(8))
def test_two_users_who_always_wait_are_served_alike(seed: int) -> None:
    rng = Random(seed)
    seqs = rng.randint(1, 6)
    world = ample_world(SchedulerConfig(max_num_seqs=seqs, max_num_batched_tokens=40 + seqs))
    longest, most_tokens = 100, 30
    users = {"few": 8, "many": 50}
    for user, count in users.items():
        for _ in range(count):
            prompt = words(rng, rng.randint(1, longest if user == "many" else 20))
            world.submit(asked(prompt, rng.randint(1, most_tokens), user=user))
    # Sheng et al. 2024, theorem 4.4: what the batch may hold, beyond which nobody is served.
    bound = INPUT_WEIGHT * longest + OUTPUT_WEIGHT * seqs * (longest + most_tokens)
    counters = world.engine.scheduler.counters
    waiting = {user: _waiting(world, user) for user in users}
    while all(waiting.values()):
        world.step()
        waiting = {user: _waiting(world, user) for user in users}
        served = [counters.service(user) for user in users]
        assert abs(served[0] - served[1]) <= bound
    calm(world)


def _waiting(world: World, user: str) -> int:
    return sum(
        w.request.user == user and w.request.state is RequestState.WAITING
        for w in world.unfinished.values()
    )


def test_of_requests_that_come_together_everyones_first_begins_before_anyones_third() -> None:
    world = ample_world(SchedulerConfig(max_num_seqs=4, max_num_batched_tokens=64))
    rng = Random(0)
    flood = [world.submit(asked(words(rng, 40), 50, user="flood"))[0] for _ in range(20)]
    [mine] = world.submit(asked(words(rng, 40), 2, user="mine"))
    world.step()
    assert mine.request.state is RequestState.RUNNING
    assert sum(w.request.state is RequestState.RUNNING for w in flood) == 3
    calm(world)


def test_what_urgent_requests_were_served_is_not_held_against_newcomers_of_another_class() -> None:
    world = ample_world(SchedulerConfig(max_num_seqs=2, max_num_batched_tokens=64))
    rng = Random(0)
    for _ in range(30):
        world.submit(asked(words(rng, 10), 20, user="flood", priority=1))
    for _ in range(3):
        world.step()
    for _ in range(20):  # somebody urgent is served a lot, one request after the other
        [urgent] = world.submit(asked(words(rng, 200), 2, user="urgent"))
        while not urgent.request.finished:
            world.step()
    [mine] = world.submit(asked(words(rng, 10), 2, user="mine", priority=1))
    assert _begun_before(world, mine, "flood") == 0
    calm(world)


def test_one_running_request_saves_up_no_credit() -> None:
    world = ample_world(SchedulerConfig(max_num_seqs=4, max_num_batched_tokens=64))
    rng = Random(0)
    world.submit(asked(words(rng, 3), 400, user="saver"))
    for _ in range(200):
        world.submit(asked(words(rng, 20), 5, user="busy"))
    for _ in range(150):
        world.step()
    savers = [world.submit(asked(words(rng, 20), 5, user="saver"))[0] for _ in range(100)]
    waiting = _waiting(world, "busy")
    assert waiting > 20
    while sum(w.request.state is RequestState.WAITING for w in savers) > 80:
        world.step()
    assert waiting - _waiting(world, "busy") >= 10
    calm(world)


def _begun_before(world: World, mine: Watched, user: str) -> int:
    """Requests of ``user`` that begin in steps in which ``mine`` still waits."""
    waiting = left = _waiting(world, user)
    while mine.request.state is RequestState.WAITING:
        left = _waiting(world, user)
        world.step()
    return waiting - left
