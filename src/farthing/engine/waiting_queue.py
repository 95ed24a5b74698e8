"""In which order waiting requests begin."""

from __future__ import annotations

import heapq
from bisect import insort
from collections import OrderedDict

from farthing.engine.fair_share import VirtualTokenCounters
from farthing.engine.request import Request


class WaitingQueue:
    """Requests by priority; within one, some that go ahead, then by fair share.

    A preempted request goes ahead, for it has had its turn, and a further choice of a prompt, for
    the first one's blocks are there to be shared.

    Of the users who wait, who has received the least service is next; a user's own requests, and
    users of equal service, come in order of arrival. Without ``counters`` so do all. Every
    operation takes at most logarithmic time in the number of waiting users.
    """

    def __init__(self, counters: VirtualTokenCounters | None) -> None:
        self._counters = counters
        self._classes: dict[int, _PriorityClass] = {}
        self._priorities: list[int] = []  # of the classes, ascending
        self._length = 0

    def __len__(self) -> int:
        """Requests that wait."""
        return self._length

    def push(self, request: Request) -> None:
        """Adds a request: behind all of its user, or where it goes ahead."""
        found = self._classes.get(request.priority)
        if found is None:
            found = self._classes[request.priority] = _PriorityClass(self._counters)
            insort(self._priorities, request.priority)
        found.push(request)
        self._length += 1

    def first(self) -> Request | None:
        """The request that is next."""
        if not self._priorities:
            return None
        return self._classes[self._priorities[0]].first()

    def remove(self, request: Request) -> None:
        """Takes out a request, wherever it stands."""
        found = self._classes[request.priority]
        found.remove(request)
        self._length -= 1
        if not found:
            del self._classes[request.priority]
            self._priorities.remove(request.priority)


class _PriorityClass:
    """Waiting requests of one priority."""

    def __init__(self, counters: VirtualTokenCounters | None) -> None:
        self._counters = counters
        self._ahead: list[tuple[int, Request]] = []  # by arrival
        self._users: dict[str, OrderedDict[int, Request]] = {}  # by arrival
        # One entry for each of them at least. Its key may be too low, never too high: service and
        # the arrival of a user's first request only grow.
        self._heap: list[tuple[int, int, str]] = []

    def __bool__(self) -> bool:
        return bool(self._ahead or self._users)

    def push(self, request: Request) -> None:
        if _goes_ahead(request):
            insort(self._ahead, (request.arrival, request), key=lambda entry: entry[0])
            return
        user = self._user(request)
        queue = self._users.get(user)
        if queue is None:
            if self._counters is not None:
                least = self._service(self._next_in_turn().user) if self._users else None
                self._counters.lift(user, least)
            queue = self._users[user] = OrderedDict()
            heapq.heappush(self._heap, (self._service(user), request.arrival, user))
        queue[request.arrival] = request
        if len(self._heap) > 2 * len(self._users) + 64:
            self._sweep()

    def _sweep(self) -> None:
        """Leaves one entry for each user: who went away and came back has several."""
        self._heap = [
            (self._service(user), next(iter(queue)), user) for user, queue in self._users.items()
        ]
        heapq.heapify(self._heap)

    def first(self) -> Request:
        return self._ahead[0][1] if self._ahead else self._next_in_turn()

    def _next_in_turn(self) -> Request:
        while True:
            service, arrival, user = self._heap[0]
            queue = self._users.get(user)
            if queue is None:
                heapq.heappop(self._heap)
                continue
            request = next(iter(queue.values()))
            key = (self._service(user), request.arrival)
            if key == (service, arrival):
                return request
            heapq.heapreplace(self._heap, (*key, user))

    def remove(self, request: Request) -> None:
        if _goes_ahead(request):
            self._ahead.remove((request.arrival, request))
            return
        user = self._user(request)
        del self._users[user][request.arrival]
        if not self._users[user]:
            del self._users[user]

    def _user(self, request: Request) -> str:
        return request.user if self._counters is not None else ""

    def _service(self, user: str) -> int:
        return self._counters.service(user) if self._counters is not None else 0


def _goes_ahead(request: Request) -> bool:
    return request.num_preemptions > 0 or request.leader is not None
