"""What the engine last said of itself."""

from __future__ import annotations

import asyncio
import math
import time
from typing import Protocol

from farthing.errors import FarthingError
from farthing.server.seam.messages import EngineInfo, Metrics

SCRAPE_SECONDS = 1.0
"""How long a scrape waits for the engine, which answers between two steps."""

ANSWER_SECONDS = 60.0
"""How long an answer may take to be of use to a later scrape: steps that read prompts are long."""


class ObservedEngine(Protocol):
    """What is asked of the engine's client."""

    @property
    def info(self) -> EngineInfo | None:
        """None until it is ready."""

    @property
    def loading(self) -> tuple[int, int]:
        """Bytes of weights that are loaded, and of all."""

    @property
    def pid(self) -> int | None:
        """Of its process."""

    async def metrics(self, timeout: float) -> Metrics | None:
        """What it has done so far; None if it does not answer in time."""

    def stalled_for(self) -> float:
        """Seconds since its last sign of life, while work waits."""


class EngineSnapshots:
    """Asks the engine, one question at a time for all who want to know."""

    def __init__(self, engine: ObservedEngine) -> None:
        self.latest: Metrics | None = None
        self._engine = engine
        self._taken_at = -math.inf
        self._question: asyncio.Task[None] | None = None

    @property
    def age(self) -> float:
        """Seconds since the latest was taken; infinite without any."""
        return time.monotonic() - self._taken_at

    async def refresh(self) -> None:
        """Takes a new one, if the engine answers within :data:`SCRAPE_SECONDS`."""
        if self._question is None or self._question.done():
            self._question = asyncio.create_task(self._ask())
        await asyncio.wait([self._question], timeout=SCRAPE_SECONDS)  # and leaves it to the others

    async def _ask(self) -> None:
        try:
            answer = await self._engine.metrics(ANSWER_SECONDS)
        except FarthingError:  # it has ended: what it last said stays
            return
        if answer is not None:
            self.latest, self._taken_at = answer, time.monotonic()
