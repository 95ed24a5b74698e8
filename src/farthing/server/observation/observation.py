"""Where routes tell what became of a request; metrics, logs and traces follow from it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Protocol

from farthing.server.observation.record import RequestRecord
from farthing.server.observation.request_counts import RequestCounts

logger = logging.getLogger(__name__)


class Listener(Protocol):
    """Who wants to know of requests: a log, a tracer."""

    def started(self, record: RequestRecord) -> None:
        """One has come."""

    def finished(self, record: RequestRecord) -> None:
        """One has ended; nothing of it changes any more."""


class Observation:
    """Told of every generating request, once when it comes and once when it ends."""

    def __init__(
        self, *listeners: Listener, on_prompt: Callable[[str, object], None] | None = None
    ):
        self.counts = RequestCounts()
        self._listeners = listeners
        self._on_prompt = on_prompt

    @property
    def wants_prompts(self) -> bool:
        """Whether :meth:`prompt` does anything: prompts are logged."""
        return self._on_prompt is not None

    def prompt(self, record: RequestRecord, prompt: object) -> None:
        """What the body asks to continue, messages or prompts; goes nowhere unless wanted."""
        if self._on_prompt is not None:
            self._on_prompt(record.request_id, prompt)

    def started(self, record: RequestRecord) -> None:
        """A request has come."""
        self.counts.started(record)
        for listener in self._listeners:
            self._tell(listener.started, record)

    def finished(self, record: RequestRecord) -> None:
        """A request has ended, in whatever way. Twice is once."""
        if record.ended_at is not None:
            return
        record.ended_at = time.monotonic()
        self.counts.finished(record)
        for listener in self._listeners:
            self._tell(listener.finished, record)

    @property
    def load(self) -> int:
        """Generating requests in progress."""
        return self.counts.load

    def _tell(self, told: Callable[[RequestRecord], None], record: RequestRecord) -> None:
        """What fails here is no reason for the request to fail."""
        try:
            told(record)
        except Exception:
            logger.exception("request %s could not be recorded", record.request_id)
