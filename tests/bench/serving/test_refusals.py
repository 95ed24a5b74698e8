"""Promises of Retry-After: read in every form, kept to, compared with what came."""

from __future__ import annotations

from email.utils import formatdate

import pytest

from farthing.bench.serving.exchange import Exchange
from farthing.bench.serving.refusals import (
    LONGEST_WAIT,
    Refusal,
    RetryPolicy,
    Wait,
    refusal_facts,
    retry_after,
    wait_of,
)

NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "0.25"}, 0.25),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "1"}, 1.0),
        ({"retry-after": formatdate(NOW + 90, usegmt=True)}, 90.0),
        ({"retry-after": formatdate(NOW - 90, usegmt=True)}, 0.0),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": ""}, None),
        ({}, None),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, NOW) == seconds


def exchange(status: int, **headers: str) -> Exchange:
    made = Exchange(10.0)
    made.status, made.headers_at, made.ended = status, 10.5, 10.75
    made.headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return made


def test_what_is_a_refusal_for_now() -> None:
    assert Refusal.of(exchange(429, retry_after="2")) == Refusal(10.5, 0.75, 2.0, 429)
    assert Refusal.of(exchange(429)) == Refusal(10.5, 0.75, None, 429)
    assert Refusal.of(exchange(503, retry_after="2")) == Refusal(10.5, 0.75, 2.0, 503)
    assert Refusal.of(exchange(503)) is None
    assert Refusal.of(exchange(200)) is None


def test_policies() -> None:
    told, silent = Refusal(0.0, 0.0, 7.0, 429), Refusal(0.0, 0.0, None, 429)
    assert RetryPolicy().wait(told, 0) is None
    patient = RetryPolicy(most=9)
    assert patient.wait(told, 8) == 7.0
    assert patient.wait(told, 9) is None
    assert [patient.wait(silent, attempt) for attempt in range(6)] == [0.5, 1, 2, 4, 8, 8]
    assert patient.wait(Refusal(0.0, 0.0, LONGEST_WAIT + 1, 429), 0) is None
    assert RetryPolicy(most=2, poll=0.1).wait(told, 1) == 0.1


def test_waits_are_counted_from_the_first_refusal() -> None:
    refusals = [Refusal(5.0, 0.1, 2.0, 429), Refusal(7.0, 0.1, 1.0, 429)]
    assert wait_of(refusals, 8.5) == Wait(2.0, 3.5, 2)
    assert wait_of([], 8.5) is None
    assert wait_of([Refusal(5.0, 0.1, None, 429)], 8.5) is None


def test_facts() -> None:
    first = [Refusal(5.0, 0.1, 2.0, 429)]
    second = [Refusal(5.0, 0.4, 1.0, 429), Refusal(6.0, 0.1, None, 429)]
    given_up = [Refusal(5.0, 0.1, 2.0, 503)]
    waits = [Wait(2.0, 2.5, 1), Wait(1.0, 4.0, 2)]
    facts = refusal_facts([first, second, given_up, []], waits)
    assert facts == {
        "http_429": 3,
        "http_503": 1,
        "without_retry_after": 1,
        "requests_refused": 3,
        "slowest_refusal_ms": 400.0,
        "taken_later": 2,
        "taken_at_first_retry": 1,
        "promised_wait_s": {"median": 1.5, "p90": pytest.approx(1.9)},
        "actual_wait_s": {"median": 3.25, "p90": pytest.approx(3.85)},
        "retry_after_error_s": {"median": 1.75, "p90": pytest.approx(2.75)},
    }
    assert refusal_facts([[]], [])["retry_after_error_s"] is None
