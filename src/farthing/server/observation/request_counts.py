"""Generating requests, counted by how they ended."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy

from farthing.server.observation.record import RequestRecord


class RequestCounts:
    """Of all requests to the endpoints that generate, those that were refused too."""

    def __init__(self) -> None:
        self.in_progress: Counter[str] = Counter()  # by endpoint
        self.ended: Counter[tuple[str, str]] = Counter()  # by endpoint and outcome
        self.refusals: Counter[str] = Counter()  # by the code of the error

    def started(self, record: RequestRecord) -> None:
        """Counts one that has come."""
        self.in_progress[record.endpoint] += 1

    def finished(self, record: RequestRecord) -> None:
        """Counts one that has ended."""
        self.in_progress[record.endpoint] -= 1
        self.ended[record.endpoint, record.outcome] += 1
        if record.outcome == "refused":
            self.refusals[record.error_code or record.error_type or "unknown"] += 1

    @property
    def load(self) -> int:
        """Requests in progress."""
        return self.in_progress.total()

    def copied(self) -> RequestCounts:
        """The counts as they are now."""
        return deepcopy(self)
