"""How fast steps read memory: what decoding waits for."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from farthing.engine.metrics import EngineMetrics
from farthing.server.seam.messages import EngineInfo

WINDOW_SECONDS = 60.0
_SPACING = 5.0  # seconds between two totals that are kept


@dataclass(frozen=True, slots=True)
class ReadTotals:
    """Since the engine started."""

    weight_bytes: int
    kv_bytes: int
    seconds: float  # that steps took


def read_totals(info: EngineInfo, metrics: EngineMetrics) -> ReadTotals:
    """What steps have read: each all weights that a pass reads, and the contexts that ran.

    A context is counted once a step and for each request by itself. What is shared in a core's
    cache, or read again for later rows of the same prompt, is not told apart.
    """
    kv = metrics.kv_stored * info.kv_block_bytes // info.block_tokens
    return ReadTotals(metrics.steps * info.weight_bytes, kv, metrics.step_seconds)


class ReadRate:
    """Bytes a second of the steps of the last minute, from totals noted now and then."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._noted: deque[tuple[float, ReadTotals]] = deque([(clock(), ReadTotals(0, 0, 0.0))])

    def note(self, totals: ReadTotals) -> float:
        """Bytes a second up to now; 0.0 if no step ended in the window."""
        now = self._clock()
        while len(self._noted) > 1 and self._noted[1][0] <= now - WINDOW_SECONDS:
            self._noted.popleft()
        before = self._noted[0][1]
        if now - self._noted[-1][0] >= _SPACING:
            self._noted.append((now, totals))
        seconds = totals.seconds - before.seconds
        if seconds <= 0:
            return 0.0
        read = totals.weight_bytes + totals.kv_bytes - before.weight_bytes - before.kv_bytes
        return read / seconds
