"""From a seed to an engine, its users and what goes wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from random import Random
from typing import Any

from farthing.engine.block_pool import BLOCK_TOKENS
from farthing.engine.engine import EngineConfig
from farthing.engine.scheduler import SchedulerConfig
from farthing.sampling.params import SamplingParams
from simulation.history import FIRST_WORD
from simulation.world import Submission, World

NUM_WORDS = 8
TENANTS = (None, "mill", "bakery")


@dataclass(frozen=True, slots=True)
class Features:
    """What happens in a run: each is off in half of them, so that rare pairs are met alone."""

    bursts: bool  # requests come many at a time
    users: bool  # one floods, others do not
    priorities: bool
    prefixes: bool  # prompts begin alike
    conversations: bool  # prompts go on where others ended, or ask the same again
    answers: bool  # short prompts, long outputs: memory runs out later
    choices: bool  # several for a prompt
    prompt_logprobs: bool
    deadlines: bool
    tenants: bool
    stop_tokens: bool
    aborts: bool
    stops: bool  # by the owner: a stop string, or output that cannot be processed
    failing_draws: bool
    broken_steps: bool
    forced_preemption: bool

    @classmethod
    def drawn(cls, rng: Random) -> Features:
        """A random subset."""
        bits = rng.getrandbits(len(fields(cls)))
        return cls(*(bool(bits >> i & 1) for i in range(len(fields(cls)))))


def three_digests(before: bytes, tokens: Sequence[int]) -> bytes:
    """A digest of which there are three: most blocks collide."""
    return bytes([(sum(before) + sum(tokens)) % 3])


def drawn_world(rng: Random, **scheduling: Any) -> World:
    """An engine of any configuration, its pool from the smallest that runs to ample.

    ``scheduling``: fields of :class:`SchedulerConfig` that are not left to chance.
    """
    seqs = rng.choice((1, 2, 3, 4, 8, 12))
    rows = rng.choice((seqs, seqs + 1, seqs + 7, seqs + 16, seqs + 40, seqs + 200))
    scheduler = SchedulerConfig(
        max_num_seqs=seqs,
        max_num_batched_tokens=rows,
        max_prefill_chunk=rng.choice((None, None, 2, 5, 16, 33)),
        max_preemptions=rng.randrange(4),
        fair_share=rng.random() < 0.7,
        batching="static" if rng.random() < 0.15 else "continuous",
        use_cache=rng.random() < 0.9,
    )
    scheduler = replace(scheduler, **scheduling)
    config = EngineConfig(
        max_model_len=rng.choice((20, 34, 48, 64, 64, 97)),
        scheduler=scheduler,
        kv="contiguous" if rng.random() < 0.1 else "paged",
        prefix_caching=rng.random() < 0.8,
    )
    longest = -(-config.max_model_len // BLOCK_TOKENS)
    smallest = longest if config.kv == "contiguous" or rng.random() < 0.6 else 1
    blocks = smallest + rng.choice((rng.randrange(4), rng.randrange(4), rng.randrange(20), 60))
    return World(config, blocks, three_digests if rng.random() < 0.1 else None)


class Users:
    """Makes submissions."""

    def __init__(self, rng: Random, world: World, features: Features) -> None:
        self._rng = rng
        self._world = world
        self._features = features
        longest = world.config.max_model_len
        self._asked: list[tuple[int, ...]] = []
        self._documents = [self._words(rng.randint(1, longest)) for _ in range(3)]

    def _words(self, count: int) -> tuple[int, ...]:
        rng = self._rng
        return tuple([FIRST_WORD + int(rng.random() * NUM_WORDS) for _ in range(count)])

    def _length(self, most: int) -> int:
        """Lengths around the ends of blocks more often than others."""
        rng = self._rng
        if rng.random() < 0.5:
            return rng.randint(1, max(most, 1))
        blocks = rng.randint(1, max(most // BLOCK_TOKENS, 1))
        return max(blocks * BLOCK_TOKENS + rng.choice((-1, 0, 0, 1)), 1)

    def _prompt(self) -> tuple[int, ...]:
        rng, features, world = self._rng, self._features, self._world
        most = world.config.max_model_len - 1
        if features.answers and rng.random() < 0.6:
            return self._words(rng.randint(1, 12))
        if features.conversations and self._asked and rng.random() < 0.25:
            return rng.choice(self._asked)
        if features.conversations and world.texts and rng.random() < 0.4:
            text = rng.choice(world.texts)
            return (text[: self._length(len(text))] + self._words(rng.choice((0, 0, 1, 5))))[:most]
        if features.prefixes and rng.random() < 0.7:
            document = rng.choice(self._documents)
            return document[: self._length(len(document))] + self._words(rng.choice((0, 0, 1, 9)))
        return self._words(self._length(most + (rng.random() < 0.05)))

    def submission(self) -> Submission:
        """What a user asks next."""
        rng, features = self._rng, self._features
        with_logprobs = features.prompt_logprobs and rng.random() < 0.4
        with_stops = features.stop_tokens and rng.random() < 0.4
        prompt = self._prompt()
        self._asked.append(prompt)
        return Submission(
            prompt,
            SamplingParams(
                seed=rng.randrange(3),
                n=rng.choice((1, 2, 3, 5)) if features.choices else 1,
                max_tokens=rng.choice((20, 35, None) if features.answers else (1, 2, 5, 17, 40)),
                prompt_logprobs=1 if with_logprobs else None,
                stop_token_ids=(FIRST_WORD + rng.randrange(NUM_WORDS),) if with_stops else None,
                ignore_eos=features.answers or rng.random() < 0.3,
            ),
            user=self._user(),
            priority=rng.randrange(3) if features.priorities else 0,
            tenant=rng.choice(TENANTS) if features.tenants else None,
            patience=rng.choice((0.0, 3.0, 20.0, 1e6)) if features.deadlines else None,
        )

    def _user(self) -> str:
        if not self._features.users:
            return ""
        return "flood" if self._rng.random() < 0.7 else self._rng.choice("abc")
