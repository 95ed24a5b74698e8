"""Which requests have run out of time."""

from __future__ import annotations

import heapq

from farthing.engine.request import Request


class Deadlines:
    """Requests by the moment at which they end at the latest."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Request]] = []
        self._length_when_swept = 0

    def add(self, request: Request) -> None:
        """Watches ``request``, if it has a deadline. It has been queued: ``arrival`` is set."""
        if request.deadline is None:
            return
        heapq.heappush(self._heap, (request.deadline, request.arrival, request))
        if len(self._heap) > 2 * self._length_when_swept + 64:
            self._sweep()

    def _sweep(self) -> None:
        """Drops those that have ended, so that far deadlines do not keep them in memory."""
        self._heap = [entry for entry in self._heap if not entry[2].finished]
        heapq.heapify(self._heap)
        self._length_when_swept = len(self._heap)

    def expired(self, now: float) -> list[Request]:
        """Unfinished requests whose deadline is ``now`` or was before, each once."""
        late = []
        while self._heap and self._heap[0][0] <= now:
            _, _, request = heapq.heappop(self._heap)
            if not request.finished:
                late.append(request)
        return late
