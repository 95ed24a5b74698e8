"""When requests join a batch and leave it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from farthing.engine.request import Request
from farthing.engine.schedule import ScheduledRows

BatchingName = Literal["continuous", "static"]


class Batching(Protocol):
    """What a scheduler asks about its batch."""

    reserves: bool
    """Whether a request runs with memory for all that it may ever store."""

    ended: list[Request]
    """Requests that have their last token and still keep their places and blocks."""

    def admits(self, running: Sequence[Request], waiting: int, quiet: float) -> bool:
        """Whether requests may join those that run.

        ``waiting`` requests might; none has come for ``quiet`` seconds.
        """

    def decoding(self, running: Sequence[Request]) -> list[Request]:
        """Those that are given their next token now."""

    def holds_ended(self) -> bool:
        """Whether a request that has its last token waits for the others of its batch."""


class ContinuousBatching:
    """Requests join and leave at any step (Yu et al., *Orca*, OSDI 2022, section 3.1)."""

    reserves = False

    def __init__(self, size: int, collect_seconds: float) -> None:
        self.ended: list[Request] = []

    def admits(self, running: Sequence[Request], waiting: int, quiet: float) -> bool:
        """Always."""
        return True

    def decoding(self, running: Sequence[Request]) -> list[Request]:
        """All whose prompts have been read."""
        return [request for request in running if request.num_remaining_tokens == 1]

    def holds_ended(self) -> bool:
        """Never."""
        return False


class StaticBatching:
    """A batch begins together and lasts until its longest request ends.

    ``size`` requests are collected for it, or as many as there are when none has come for
    ``collect_seconds``.
    All prompts are read before any second token is drawn. Who has its last token earlier is not let
    go (Orca, section 3.1: neither can it return, nor can another take its place): a row is computed
    for it in every further step and its token thrown away. What the chapter compares continuous
    batching with; kernels, cache and queue are the same.
    """

    reserves = True

    def __init__(self, size: int, collect_seconds: float) -> None:
        self.ended: list[Request] = []
        self._size = size
        self._collect_seconds = collect_seconds

    def admits(self, running: Sequence[Request], waiting: int, quiet: float) -> bool:
        """When nobody runs and the batch is full, or will not get fuller soon."""
        return not running and (waiting >= self._size or quiet >= self._collect_seconds)

    def decoding(self, running: Sequence[Request]) -> list[Request]:
        """All of the batch, once every prompt has been read."""
        if any(request.num_remaining_tokens > 1 for request in running):
            return []
        return list(running)

    def holds_ended(self) -> bool:
        """Always."""
        return True


BATCHING: dict[BatchingName, type[ContinuousBatching] | type[StaticBatching]] = {
    "continuous": ContinuousBatching,
    "static": StaticBatching,
}


def discarded_row(request: Request) -> ScheduledRows:
    """The row that would follow if the request had not ended; its last again without room."""
    start = min(request.num_computed_tokens, request.most_stored_tokens - 1)
    return ScheduledRows(request, start, 1, samples=True, discarded=True)
