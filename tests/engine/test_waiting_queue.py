"""In which order requests begin: priority, then who has had least, then who came first."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from farthing.engine.fair_share import MAX_REMEMBERED, VirtualTokenCounters
from farthing.engine.request import Request
from farthing.engine.waiting_queue import WaitingQueue
from support.schedules import advance, make_request, make_scheduler


def drain(queue: WaitingQueue) -> list[str]:
    order = []
    while (request := queue.first()) is not None:
        queue.remove(request)
        order.append(request.request_id)
    return order


def queue_of(counters: VirtualTokenCounters | None, *requests: Request) -> WaitingQueue:
    queue = WaitingQueue(counters)
    for arrival, request in enumerate(requests):
        request.arrival = arrival
        if counters is not None:
            counters.enter(request.user)
        queue.push(request)
    return queue


def test_lower_priorities_begin_first_and_equal_ones_in_order() -> None:
    requests = [make_request(f"{p}{i}", 1, priority=p) for i in range(3) for p in (2, -1, 0)]
    queue = queue_of(None, *requests)
    assert len(queue) == 9
    assert drain(queue) == ["-10", "-11", "-12", "00", "01", "02", "20", "21", "22"]
    assert len(queue) == 0


def test_requests_can_be_taken_out_anywhere() -> None:
    rng = random.Random(5)
    requests = [make_request(str(i), 1, user=f"u{i % 7}", priority=i % 3 % 2) for i in range(200)]
    counters = VirtualTokenCounters()
    queue = queue_of(counters, *requests)
    gone = rng.sample(requests, 120)
    for request in gone:
        queue.remove(request)
    assert sorted(drain(queue), key=int) == [r.request_id for r in requests if r not in gone]


def test_who_has_had_least_is_next_then_who_came_first() -> None:
    counters = VirtualTokenCounters()
    queue = queue_of(
        counters,
        *(make_request(f"flood{i}", 1, user="flood") for i in range(3)),
        make_request("late", 1, user="late"),
    )
    counters.charge("flood", 100, 0)
    assert drain(queue) == ["late", "flood0", "flood1", "flood2"]


def test_a_preempted_request_goes_ahead_of_its_priority() -> None:
    requests = [make_request(name, 1) for name in "abc"]
    requests[2].num_preemptions = 1
    urgent = make_request("urgent", 1, priority=-1)
    assert drain(queue_of(None, *requests, urgent)) == ["urgent", "c", "a", "b"]


def test_a_pause_saves_nothing_up() -> None:
    counters = VirtualTokenCounters()
    counters.enter("busy")
    for _ in range(10):
        counters.charge("busy", 100, 50)
        counters.admitted("busy")
    counters.enter("new")
    counters.lift("new", None)
    assert counters.service("new") == counters.service("busy") == 10 * 200
    counters.charge("new", 1, 1)
    assert counters.service("new") == 2003


def test_who_leaves_is_remembered_as_long_as_it_matters_and_no_longer() -> None:
    counters = VirtualTokenCounters()
    counters.enter("served")
    counters.charge("served", 10, 0)
    counters.leave("served")
    counters.enter("served")
    assert counters.service("served") == 10, "leaving and coming back pays nothing off"
    counters.leave("served")
    for i in range(MAX_REMEMBERED):
        counters.enter(f"user {i}")
        counters.charge(f"user {i}", 1, 0)
        counters.leave(f"user {i}")
    counters.enter("served")
    assert counters.service("served") == 0, "the longest gone is forgotten"
    assert len(counters._service) <= MAX_REMEMBERED + 1


@pytest.mark.parametrize("fair", [True, False])
def test_a_user_who_floods_waits_behind_one_who_does_not(fair: bool) -> None:
    scheduler = make_scheduler(blocks=200, max_num_seqs=2, fair_share=fair)
    flood = [make_request(f"flood {i}", 20, max_tokens=10, user="flood") for i in range(20)]
    for request in flood:
        scheduler.add(request)
    for _ in range(15):
        advance(scheduler)
    scheduler.ended.clear()
    polite = [make_request(f"polite {i}", 20, max_tokens=10, user="polite") for i in range(3)]
    for request in polite:
        scheduler.add(request)
    order: list[str] = []
    while scheduler.has_work:
        advance(scheduler)
        order += [r.user for r in scheduler.ended]
        scheduler.ended.clear()
    last = max(i for i, user in enumerate(order) if user == "polite")
    # Two run already; then they take turns, three each.
    assert last <= 7 if fair else last == len(order) - 1


def test_backlogged_users_get_equal_service_whatever_they_ask_for() -> None:
    """The bound of the paper's theorem 4.4 (two of the largest requests), by weighted tokens."""
    rng = random.Random(3)
    scheduler = make_scheduler(blocks=400, max_num_seqs=4)
    shapes = {"short": (5, 4), "prompts": (120, 2), "answers": (3, 40)}
    for i in range(300):
        for user, (prompt, answer) in shapes.items():
            scheduler.add(
                make_request(f"{user} {i}", prompt + rng.randrange(3), max_tokens=answer, user=user)
            )
    largest = max(p + 3 + 2 * a for p, a in shapes.values())
    waiting = Counter(dict.fromkeys(shapes, 300))
    while min(waiting.values()) > 5:
        advance(scheduler)
        waiting = Counter(request.user for request in _all_waiting(scheduler.waiting))
        service = [scheduler.counters.service(user) for user in shapes]
        assert max(service) - min(service) <= 2 * 4 * largest
    assert min(service) > 20 * largest, "long enough to tell"


def _all_waiting(queue: WaitingQueue) -> list[Request]:
    return [
        request
        for found in queue._classes.values()
        for user in found._users.values()
        for request in user.values()
    ]
