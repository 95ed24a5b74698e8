"""Where the server stands between its start and its end."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
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


@dataclass(frozen=True, slots=True)
class _Download:
    """Bytes: here, all, here at its beginning. ``since`` is of the monotonic clock."""

    done: int
    total: int
    first: int
    since: float

    @property
    def share(self) -> float:
        return self.done / self.total if self.total else 0.0

    def seconds_left(self) -> float:
        """At the speed it has had so far."""
        if self.done == self.first:
            return LOADING_RETRY_SECONDS
        elapsed = time.monotonic() - self.since
        return elapsed * (self.total - self.done) / (self.done - self.first)


class LifeCycle:
    """The phase, and what is told to those who come at the wrong time.

    ``loading`` tells how many bytes of weights are in memory, and of how many. A download before
    that, of which :meth:`downloading` is told, is a part of LOADING.
    """

    def __init__(
        self, drain_seconds: float, loading: Callable[[], tuple[int, int]] = lambda: (0, 0)
    ) -> None:
        self.phase = Phase.LOADING
        self._drain_seconds = drain_seconds
        self._since = time.monotonic()
        self._loading = loading
        self._download: _Download | None = None

    def downloading(self, done: int, total: int) -> None:
        """``done`` of the ``total`` bytes of the model are here. From any thread."""
        before = self._download
        if before is None or before.total != total or done < before.done:
            self._download = _Download(done, total, done, time.monotonic())
        else:
            self._download = replace(before, done=done)

    def downloaded(self) -> None:
        """The model is on this machine, and is loaded from now on."""
        self._download = None
        self._since = time.monotonic()

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
            Phase.LOADING: self._preparing(),
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

    def _preparing(self) -> str:
        download = self._download
        if download is None:
            return f"the model is being loaded ({self._loaded():.0%})"
        share = f"{download.share:.0%} of {download.total / 1e9:.2f} GB"
        return f"the model is being downloaded ({share})"

    def _retry_after(self) -> float:
        elapsed = time.monotonic() - self._since
        if self.phase is Phase.LOADING:
            if self._download is not None:
                return max(self._download.seconds_left(), LEAST_RETRY_SECONDS)
            loaded = self._loaded()
            if loaded <= 0:
                return LOADING_RETRY_SECONDS
            return max(elapsed / loaded - elapsed, LEAST_RETRY_SECONDS)
        if self.phase is Phase.DRAINING:
            return max(self._drain_seconds - elapsed, LEAST_RETRY_SECONDS)
        return RESTART_SECONDS
