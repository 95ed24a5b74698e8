"""What one key may do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farthing.openai_protocol.errors import RequestError
from farthing.server.admission.admission import Admission, Ask, Place
from farthing.server.admission.forecasting import SLACK
from farthing.server.admission.limits import QueueLimits, RateLimits
from farthing.server.admission.numbers import Refusal
from farthing.server.admission.rate_limits import RateLimiter
from farthing.server.principal import ANYBODY, Principal
from server.admission.steps import stepped

ROOMY = QueueLimits(1000, 10**6)


class Clock:
    def __init__(self) -> None:
        self.now = 500.0

    def __call__(self) -> float:
        return self.now


class Door:
    """An admission and those who come to it."""

    def __init__(self, rates: RateLimits | None = None) -> None:
        self.clock = Clock()
        self.admission = Admission(ROOMY, max_num_seqs=8, rates=rates, clock=self.clock)
        self.keys = 0

    def enter(self, principal: Principal) -> Place:
        self.keys += 1
        return self.admission.enter(principal, [Ask(self.keys, 10, 1, 50)])

    def refusal(self, principal: Principal) -> RequestError:
        with pytest.raises(RequestError) as caught:
            self.enter(principal)
        return caught.value


def test_a_minute_has_so_many_requests_and_the_next_comes_when_it_is_said() -> None:
    door, alice = Door(), Principal("alice", requests_per_minute=6)
    for _ in range(6):
        door.enter(alice).leave()
    error = door.refusal(alice)
    assert (error.status, error.type, error.code) == (
        429,
        "rate_limit_error",
        "rate_limit_exceeded",
    )
    assert error.retry_after == pytest.approx(10)
    assert "6 requests a minute" in str(error)
    assert door.admission.numbers.refusals == {Refusal.RATE: 1}
    door.clock.now += 9.99
    assert door.refusal(alice).retry_after == pytest.approx(10.01)  # 0.01 is another's already
    door.clock.now += 0.02
    door.enter(alice)


def test_of_many_who_are_refused_each_is_told_a_moment_of_its_own() -> None:
    door, alice = Door(), Principal("alice", requests_per_minute=60)
    for _ in range(60):
        door.enter(alice).leave()
    waits = [door.refusal(alice).retry_after for _ in range(50)]
    assert waits == pytest.approx([float(i) for i in range(1, 51)])
    start = door.clock.now
    for wait in waits:
        assert wait is not None
        door.clock.now = start + wait + 1e-6
        door.enter(alice).leave()


def test_who_hammers_is_told_two_minutes_and_does_not_push_the_truth_away() -> None:
    door, alice = Door(), Principal("alice", requests_per_minute=1)
    door.enter(alice).leave()
    waits = [door.refusal(alice).retry_after for _ in range(100)]
    assert waits == pytest.approx([60, 120] + [120] * 98)
    door.clock.now += 121
    door.enter(alice).leave()
    assert door.refusal(alice).retry_after == pytest.approx(59, abs=1)


@given(st.lists(st.floats(0, 40), max_size=80), st.integers(1, 20))
def test_never_more_than_a_full_bucket_and_what_time_gives(gaps: list[float], limit: int) -> None:
    door, alice = Door(), Principal("alice", requests_per_minute=limit)
    entered = []
    for gap in gaps:
        door.clock.now += gap
        try:
            door.enter(alice).leave()
        except RequestError:
            continue
        entered.append(door.clock.now)
    for i, first in enumerate(entered):
        for j in range(i, len(entered)):
            assert j - i + 1 <= limit + (entered[j] - first) * limit / 60 + 1e-6


def test_so_many_at_a_time_and_one_more_when_one_leaves() -> None:
    door, alice = Door(), Principal("alice", max_concurrent_requests=2)
    places = [door.enter(alice), door.enter(alice)]
    error = door.refusal(alice)
    assert error.code == "rate_limit_exceeded"
    assert "2 requests at a time" in str(error)
    assert error.retry_after is not None
    assert door.admission.numbers.refusals == {Refusal.CONCURRENCY: 1}
    places[0].leave()
    places[0].leave()
    door.enter(alice)
    door.refusal(alice)


def test_the_wait_for_one_at_a_time_is_what_its_own_request_takes() -> None:
    """Ten passes of 0.1 s are left of the answer, and its end is known."""
    door, alice = Door(), Principal("alice", max_concurrent_requests=1)
    for i in range(40):  # what a step takes
        door.admission.on_step(stepped(i / 10, (i + 1) / 10, decode_rows=1, num_running=0))
    place = door.admission.enter(alice, [Ask(9999, 10, 1, 50, ignore_eos=True)])
    now = door.clock.now = 600.0
    door.admission.on_step(
        stepped(
            now - 0.1, now, decode_rows=1, begun=[(9999, 0)], progress=[(9999, 0, 10, 40, False)]
        )
    )
    assert door.refusal(alice).retry_after == pytest.approx(1 + SLACK, rel=0.02)
    place.leave()


def test_keys_have_the_common_limits_unless_they_have_their_own() -> None:
    door = Door(RateLimits(requests_per_minute=2, max_concurrent_requests=1))
    bob = Principal("bob", requests_per_minute=3, max_concurrent_requests=2)
    held = [door.enter(bob), door.enter(bob)]
    assert "at a time" in str(door.refusal(bob))
    held[0].leave()
    door.enter(bob)
    assert "3 requests a minute" in str(door.refusal(bob))
    door.enter(ANYBODY)
    assert "1 requests at a time" in str(door.refusal(ANYBODY))


def test_who_is_refused_has_used_nothing_up() -> None:
    door, alice = Door(), Principal("a", requests_per_minute=2, max_concurrent_requests=1)
    place = door.enter(alice)
    for _ in range(5):
        door.refusal(alice)
    place.leave()
    door.enter(alice)


def test_a_key_without_limits_is_never_refused() -> None:
    door = Door()
    for _ in range(900):
        door.enter(Principal("free"))
    assert door.admission.numbers.refusals.total() == 0


def test_principals_who_are_gone_are_forgotten() -> None:
    limiter = RateLimiter(RateLimits(requests_per_minute=5))
    busy = Principal("busy")
    limiter.enter(busy, 0.0)
    for i in range(5000):
        principal = Principal(f"name {i}")
        assert limiter.check(principal, float(i), lambda name, count: 0.0) is None
        limiter.enter(principal, float(i))
        limiter.leave(principal)
    assert len(limiter) <= 600
    limiter.leave(busy)  # remembered as long as it has something in work
