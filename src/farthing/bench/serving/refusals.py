"""Refused for now: what a server promised with ``Retry-After``, and whether it was true."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

import numpy as np

from farthing.bench.serving.exchange import Exchange

LONGEST_WAIT = 600.0
"""Seconds; who is told to wait longer does not."""

_BACK_OFF = (0.5, 8.0)  # seconds before the first attempt without a promise, and at most


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """What a client does when it is refused with 429, or with 503 and ``Retry-After``.

    It asks again up to ``most`` times: when it was told to, or every ``poll`` seconds, which finds
    out when there really was a place.
    """

    most: int = 0
    poll: float | None = None

    def wait(self, refusal: Refusal, attempt: int) -> float | None:
        """Seconds from the refusal to the next attempt; None: none is made.

        ``attempt``: how many refusals there were before this.
        """
        if attempt >= self.most or (refusal.promised or 0) > LONGEST_WAIT:
            return None
        if self.poll is not None:
            return self.poll
        if refusal.promised is not None:
            return refusal.promised
        first, most = _BACK_OFF
        return float(min(first * 2 ** min(attempt, 10), most))


@dataclass(frozen=True, slots=True)
class Refusal:
    """One attempt that was turned away."""

    at: float  # when its head came, of time.perf_counter
    took: float  # seconds from the attempt's start to the end of the response
    promised: float | None  # seconds until asking again makes sense, as the server says
    status: int

    @classmethod
    def of(cls, exchange: Exchange) -> Refusal | None:
        """What ``exchange`` says if it is a refusal for now."""
        if exchange.status not in (429, 503) or exchange.headers_at is None:
            return None
        promised = retry_after(exchange.headers, time.time())
        if exchange.status == 503 and promised is None:
            return None
        ended = exchange.ended if exchange.ended is not None else exchange.headers_at
        return cls(exchange.headers_at, ended - exchange.started, promised, exchange.status)


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds of ``retry-after-ms`` or ``retry-after``; ``now``: seconds since 1970, for dates.

    Names are in lower case. None if there is none that can be understood.
    """
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        text = headers.get(name, "")
        try:
            seconds = float(text) * unit
        except ValueError:
            continue
        if 0 <= seconds < float("inf"):
            return seconds
    try:
        return max(parsedate_to_datetime(headers["retry-after"]).timestamp() - now, 0.0)
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


@dataclass(frozen=True, slots=True)
class Wait:
    """Of one request that was refused and then taken. Seconds."""

    promised: float  # by the first refusal
    actual: float  # from the first refusal to the beginning of the attempt that was taken
    attempts: int  # that were refused


def wait_of(refusals: Sequence[Refusal], taken: float) -> Wait | None:
    """The wait of a request; ``taken``: when the attempt that was taken began."""
    if not refusals or refusals[0].promised is None:
        return None
    first = refusals[0]
    return Wait(refusals[0].promised, taken - first.at, len(refusals))


def refusal_facts(refusals: Sequence[Sequence[Refusal]], waits: Sequence[Wait]) -> dict[str, Any]:
    """What a run says of refusals; those of each request, and the waits of those then taken.

    ``retry_after_error_s``: how far the actual wait was from the promised one. None where there is
    nothing to say it of.
    """
    every = [refusal for each in refusals for refusal in each]
    errors = [abs(wait.actual - wait.promised) for wait in waits]
    return {
        "http_429": sum(refusal.status == 429 for refusal in every),
        "http_503": sum(refusal.status == 503 for refusal in every),
        "without_retry_after": sum(refusal.promised is None for refusal in every),
        "requests_refused": sum(bool(each) for each in refusals),
        "slowest_refusal_ms": max((refusal.took for refusal in every), default=0.0) * 1e3,
        "taken_later": len(waits),
        "taken_at_first_retry": sum(wait.attempts == 1 for wait in waits),
        "promised_wait_s": _spread([wait.promised for wait in waits]),
        "actual_wait_s": _spread([wait.actual for wait in waits]),
        "retry_after_error_s": _spread(errors),
    }


def _spread(values: Sequence[float]) -> dict[str, float] | None:
    if not values:
        return None
    return {"median": float(np.median(values)), "p90": float(np.percentile(values, 90))}
