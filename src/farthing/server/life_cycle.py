"""Where the server stands between its start and its end."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum

from farthing.openai_protocol.errors import RequestError

LEAST_RETRY_SECONDS = 1.0
RESTART_SECONDS = 5.0
"""After which to look whether there is a server again where one has ended."""

LOADING_RETRY_SECONDS = 5.0
"""When nothing is known yet of how long loading takes."""


class Phase(Enum):
    """READY is the only one in which requests are taken; FAILED is final."""

    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    FAILED = "failed"


class LifeCycle:
    """The phase, and what is told to those who come at the wrong time.

    ``loading`` tells how many bytes of weights are in memory, and of how many.
    """

    def __init__(
        self, drain_seconds: float, loading: Callable[[], tuple[int, int]] = lambda: (0, 0)
    ) -> None:
        self.phase = Phase.LOADING
        self._drain_seconds = drain_seconds
        self._since = time.monotonic()
        self._loading = loading

    def enter(self, phase: Phase) -> None:
        """Goes on to ``phase``."""
        self.phase = phase
        self._since = time.monotonic()

    def _loaded(self) -> float:
        done, total = self._loading()
        return done / total if total else 0.0

    def refuse_unless_ready(self) -> None:
        """Raises :class:`RequestError` (503) unless requests are taken."""
        if self.phase is not Phase.READY:
            raise self.unavailable()

    def without_engine(self) -> RequestError:
        """The error of whoever has come in time, but found that the engine was gone."""
        return self.unavailable(Phase.FAILED if self.phase is Phase.READY else self.phase)

    def unavailable(self, phase: Phase | None = None) -> RequestError:
        """The error of whoever comes while it is not ready, with the time to come again.

        ``phase``: another than that in which it is.
        """
        phase = phase or self.phase
        message = {
            Phase.LOADING: f"the model is being loaded ({self._loaded():.0%})",
            Phase.READY: "the engine does not answer",
            Phase.DRAINING: "the server is about to stop: it finishes what it has begun",
            Phase.FAILED: "the engine has failed and the server ends",
        }[phase]
        return RequestError(
            message,
            status=503,
            type="service_unavailable",
            code="stalled" if phase is Phase.READY else phase.value,
            retry_after=self._retry_after(),
        )

    def _retry_after(self) -> float:
        elapsed = time.monotonic() - self._since
        if self.phase is Phase.LOADING:
            loaded = self._loaded()
            if loaded <= 0:
                return LOADING_RETRY_SECONDS
            return max(elapsed / loaded - elapsed, LEAST_RETRY_SECONDS)
        if self.phase is Phase.DRAINING:
            return max(self._drain_seconds - elapsed, LEAST_RETRY_SECONDS)
        return RESTART_SECONDS
