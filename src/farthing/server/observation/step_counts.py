"""Steps of the engine as they are told: how long they take, and how well that was known."""

from __future__ import annotations

from copy import deepcopy

from farthing.engine.metrics import Histogram
from farthing.server.seam.messages import Stepped

SECONDS_BOUNDS = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75),
    *(1.0, 1.5, 2.5, 5.0, 10.0),
)
RATIO_BOUNDS = (0.25, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.25, 1.5, 2.0, 4.0, 10.0)


class StepCounts:
    """Counts since the start."""

    def __init__(self) -> None:
        self.seconds = Histogram(SECONDS_BOUNDS)
        self.predicted_seconds = 0.0
        self.ratio = Histogram(RATIO_BOUNDS)  # actual by predicted

    def on_step(self, stepped: Stepped, predicted: float | None) -> None:
        """Enters a step; one that computed nothing is none.

        ``predicted``: the seconds it was expected to take, above 0; None: nobody foretold it.
        """
        if stepped.decode_rows + stepped.prefill_rows == 0:
            return
        seconds = stepped.ended - stepped.started
        self.seconds.observe(seconds)
        if predicted is not None:
            self.predicted_seconds += predicted
            self.ratio.observe(seconds / predicted)

    def copied(self) -> StepCounts:
        """The counts as they are now."""
        copied = StepCounts()
        copied.seconds, copied.ratio = deepcopy(self.seconds), deepcopy(self.ratio)
        copied.predicted_seconds = self.predicted_seconds
        return copied
