"""Who is next to begin, as the engine's scheduler chooses."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable

from farthing.server.admission.prompts import Prompt


class FairOrder:
    """Prompts by priority; within one, of the user who has been served least, then by arrival.

    ``service`` says what a user has been served; it only grows. Every operation takes at most
    logarithmic time in the number of users, amortized.
    """

    def __init__(self, service: Callable[[str], float]) -> None:
        self._service = service
        self._arrivals = 0
        self._queues: dict[tuple[int, str], deque[tuple[int, Prompt]]] = {}  # by arrival
        # An entry for each of them: priority, service, arrival of its first, user. The service may
        # be too low.
        self._heap: list[tuple[int, float, int, str]] = []

    def push(self, prompt: Prompt) -> None:
        """Adds a prompt, behind all of its user."""
        priority, user = prompt.request.priority, prompt.request.user
        self._arrivals += 1
        queue = self._queues.get((priority, user))
        if queue is None:
            queue = self._queues[priority, user] = deque()
            heapq.heappush(self._heap, (priority, self._service(user), self._arrivals, user))
        queue.append((self._arrivals, prompt))

    def first(self) -> Prompt | None:
        """The prompt that is next."""
        while self._heap:
            priority, told, arrival, user = self._heap[0]
            service = self._service(user)
            if service <= told:
                return self._queues[priority, user][0][1]
            heapq.heapreplace(self._heap, (priority, service, arrival, user))
        return None

    def pop(self) -> None:
        """Takes out the first."""
        priority, service, _, user = self._heap[0]
        queue = self._queues[priority, user]
        queue.popleft()
        if queue:
            heapq.heapreplace(self._heap, (priority, service, queue[0][0], user))
        else:
            heapq.heappop(self._heap)
            del self._queues[priority, user]
