"""The last steps one by one, for measurements."""

from __future__ import annotations

from collections import deque

from farthing.server.seam.messages import Stepped

MOST_STEPS = 8192


class RecentSteps:
    """What is kept of each: (started, ended, decode rows, prefill rows), seconds."""

    def __init__(self) -> None:
        self.steps: deque[tuple[float, float, int, int]] = deque(maxlen=MOST_STEPS)

    def on_step(self, stepped: Stepped) -> None:
        """Keeps a step that computed something."""
        if stepped.decode_rows + stepped.prefill_rows:
            self.steps.append(
                (stepped.started, stepped.ended, stepped.decode_rows, stepped.prefill_rows)
            )
