"""How quickly a loaded model decodes: alone, and where larger batches cease to pay."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from farthing.bench.steps import decode_cases, prepare
from farthing.bench.target import Target
from farthing.engine.block_pool import BLOCK_TOKENS, blocks_for
from farthing.engine.model_loader import LoadedModel

BATCHES = (1, 2, 4, 8, 16, 32, 64)

CONTEXT = 64
"""Tokens that each sequence has cached: few, so that weights and products are what is timed."""

STEPS = 5
"""Of a batch, at least: their median counts, behind one that does not."""

ENOUGH_SECONDS = 0.3
"""Quick steps are repeated so long: the system's pauses then hit some of them, not the median."""

MOST_STEPS = 50

WORTH = 0.2
"""What doubling the batch must add to the throughput. With less, every answer takes 1.67 times as
long, or longer, for a fifth more of them."""

CACHED_TOKENS = BATCHES[-1] * blocks_for(CONTEXT + 1) * BLOCK_TOKENS
"""That the KV cache has to have room for."""


@dataclass(frozen=True, slots=True)
class StepTime:
    """One token for each of ``batch`` sequences; seconds."""

    batch: int
    seconds: float  # median
    least: float
    most: float
    steps: int

    @property
    def tokens_per_second(self) -> float:
        """Of all sequences together."""
        return self.batch / self.seconds


@dataclass(frozen=True, slots=True)
class Speed:
    """Steps of growing batches, up to the first that was not worth its wait."""

    steps: tuple[StepTime, ...]

    @property
    def alone(self) -> StepTime:
        """A sequence by itself."""
        return self.steps[0]

    @property
    def knee(self) -> StepTime:
        """The largest batch that was reached by doublings each worth their while."""
        return self.steps[knee([step.tokens_per_second for step in self.steps])]


def knee(throughputs: Sequence[float]) -> int:
    """Index of the last throughput that is higher than the one before by :data:`WORTH` or more.

    ``throughputs`` are those of batches doubled each time; what comes after a doubling that was not
    worth it does not count.
    """
    best = 0
    while best + 1 < len(throughputs) and throughputs[best + 1] >= (1 + WORTH) * throughputs[best]:
        best += 1
    return best


def measure_speed(loaded: LoadedModel, told: Callable[[int], None]) -> Speed:
    """Times decode steps of the model at batches of 1, 2, 4 and on until the knee is passed.

    What the KV cache held is overwritten. ``told`` is told of the batch that is next.
    """
    runner = loaded.runner
    target = Target(
        str(loaded.checkpoint.path),
        runner.executor,
        runner.kv,
        runner.kv.dtype,
        loaded.config.vocab_size,
    )
    prepare(target)
    steps: list[StepTime] = []
    for batch in BATCHES:
        told(batch)
        (whole, _) = decode_cases(target, batch, CONTEXT)
        steps.append(_median(batch, whole.run))
        if knee([step.tokens_per_second for step in steps]) + 1 < len(steps):
            break
    return Speed(tuple(steps))


def _median(batch: int, run: Callable[[], float]) -> StepTime:
    run()
    seconds: list[float] = []
    end = time.perf_counter() + ENOUGH_SECONDS
    while len(seconds) < STEPS or (len(seconds) < MOST_STEPS and time.perf_counter() < end):
        seconds.append(run())
    return StepTime(batch, statistics.median(seconds), min(seconds), max(seconds), len(seconds))
