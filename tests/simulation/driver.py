"""Runs a seed: a storm of random events, then a calm in which everything must end."""

from __future__ import annotations

from random import Random
from typing import Any

from farthing.engine.block_pool import BLOCK_TOKENS
from farthing.engine.request import Request
from simulation.checking_runner import BEFORE_COPIES
from simulation.scenario import Features, Users, drawn_world
from simulation.schedule_rules import OLDEST_PROMPT_LOGITS
from simulation.world import World


def replay_command(seed: int) -> str:
    """What plays one seed again."""
    return f"PYTHONPATH=tests python -m simulation --seeds {seed}"


def check_seed(seed: int) -> World:
    """Plays ``seed``; whatever it raises says how to play it again."""
    try:
        return simulate(seed)
    except BaseException as error:
        error.add_note(f"seed {seed}, played again by: {replay_command(seed)}")
        raise


def simulate(seed: int, **scheduling: Any) -> World:
    """Plays ``seed`` to its end. Raises whatever is wrong, :class:`AssertionError` as a rule.

    ``scheduling``: fields of the scheduler's configuration that are not left to the seed.
    """
    rng = Random(seed)
    features = Features.drawn(rng)
    world = drawn_world(rng, **scheduling)
    users = Users(rng, world, features)
    storm = Storm(rng, world, features)
    left = rng.choice((3, 7, 14))
    pace = rng.choice((0.1, 0.3, 1.0))
    while left:
        if rng.random() < pace or not world.engine.has_work:
            count = min(left, rng.randint(1, 6) if features.bursts else 1)
            left -= count
            for _ in range(count):
                world.submit(users.submission())
        storm.blow()
        world.step()
        world.advance(rng.random())
    for _ in range(rng.choice((0, 5, 20))):
        storm.blow()
        world.step()
        world.advance(rng.random())
    calm(world)
    world.check_forgotten()
    return world


class Storm:
    """What users, owners, machines and schedulers do to a running engine."""

    def __init__(self, rng: Random, world: World, features: Features) -> None:
        self._rng = rng
        self._world = world
        self._features = features
        self._every = rng.choice((2, 5, 10))  # steps between two events of a kind
        self._acts = [
            (self._abort, features.aborts),
            (self._stop, features.stops),
            (self._fail_draw, features.failing_draws),
            (self._break_off, features.broken_steps),
            (self._preempt, features.forced_preemption),
        ]

    def blow(self) -> None:
        """What happens before the next step."""
        for act, is_on in self._acts:
            if is_on and self._rng.random() * self._every < 1 and self._world.unfinished:
                act()

    def _any(self) -> str:
        return self._rng.choice(list(self._world.unfinished))

    def _abort(self) -> None:
        self._world.abort(self._world.unfinished[self._any()])

    def _stop(self) -> None:
        watched = self._world.unfinished[self._any()]
        if self._rng.random() < 0.8:
            self._world.stop_at_next_token(watched)
        else:
            self._world.fail_at_next_token(watched)

    def _fail_draw(self) -> None:
        self._world.fail_draw(self._world.unfinished[self._any()])

    def _break_off(self) -> None:
        self._world.break_off(self._rng.randrange(BEFORE_COPIES, 3))

    def _preempt(self) -> None:
        running = self._world.engine.scheduler.running
        for request in self._rng.sample(running, self._rng.randint(0, len(running))):
            self._world.preempt(self._world.unfinished[request.request_id])


def calm(world: World) -> None:
    """Steps until nothing is left, within as many as there may be; then all must be at rest."""
    world.runner.breaks_after = None
    bound = world.steps + most_steps(world)
    while world.engine.has_work:
        assert world.steps < bound, f"{len(world.unfinished)} requests have not ended in time"
        world.step()
        world.advance(0.01)
    world.check_at_rest()


def most_steps(world: World) -> int:
    """Steps in which all that is unfinished must end, whatever the order.

    In every step the oldest that reads gets half the rows for prompts, or a block that another one
    computes, or everyone gets a token. So a step is one of those that some request takes, preempted
    as often as may be, being the oldest.
    """
    return sum(_most_steps(world, watched.request) for watched in world.unfinished.values())


def _most_steps(world: World, request: Request) -> int:
    config = world.config.scheduler
    rows = config.max_num_batched_tokens - (config.max_num_seqs - 1)
    if config.max_prefill_chunk is not None:
        rows = min(rows, config.max_prefill_chunk)
    rows = min((rows + 1) // 2, OLDEST_PROMPT_LOGITS, BLOCK_TOKENS)
    reading = -(-request.most_stored_tokens // rows)
    if not config.use_cache:
        reading *= request.max_tokens
    lives = 1 + max(config.max_preemptions - request.num_preemptions, 0)
    return lives * (reading + request.max_tokens)
