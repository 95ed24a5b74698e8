"""The run itself: each request sent at its time, refusals dealt with, nothing read meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field

from farthing.bench.serving.exchange import Exchange
from farthing.bench.serving.http_client import HttpClient
from farthing.bench.serving.refusals import Refusal, RetryPolicy


@dataclass(slots=True)
class Outcome:
    """What became of one request. Times of ``time.perf_counter``."""

    due: float  # when it was to be sent
    exchange: Exchange | None = None  # the last attempt; None: the run ended before it
    refusals: list[Refusal] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Played:
    """A run. Times of ``time.perf_counter``."""

    outcomes: list[Outcome]
    began: float
    ended: float
    client_seconds: float  # CPU that this process took meanwhile
    interrupted: bool


async def play(
    client: HttpClient,
    requests: Sequence[bytes],
    arrivals: Sequence[float],
    *,
    timeout: float,
    max_concurrency: int | None = None,
    policy: RetryPolicy | None = None,
    progress: Callable[[Outcome], None] = lambda outcome: None,
    stop: asyncio.Event | None = None,
) -> Played:
    """Sends ``requests``, bytes of :meth:`HttpClient.request`, at ``arrivals`` seconds, ascending.

    ``timeout``: seconds that one attempt may take. With ``max_concurrency`` a request whose time
    has come waits until so many are out no more; one that has been refused keeps its place.
    ``progress`` is told of each that is over. Set ``stop`` to end at once with what there is.
    """
    policy = policy or RetryPolicy()
    places = asyncio.Semaphore(max_concurrency) if max_concurrency is not None else None
    # What is here already need not be searched for garbage while times are taken.
    gc.collect()
    gc.freeze()
    collected = gc.isenabled()
    gc.disable()
    began = time.perf_counter()
    outcomes = [Outcome(began + arrival) for arrival in arrivals]

    async def one(request: bytes, outcome: Outcome) -> None:
        async with places or contextlib.nullcontext():
            while True:
                exchange = await client.send(request, timeout)
                refusal = Refusal.of(exchange)
                if refusal is None:
                    break
                outcome.refusals.append(refusal)
                wait = policy.wait(refusal, len(outcome.refusals) - 1)
                if wait is None:
                    break
                await _until(refusal.at + wait)
        outcome.exchange = exchange
        progress(outcome)

    async def all_of_them() -> None:
        async with asyncio.TaskGroup() as group:
            for request, outcome in zip(requests, outcomes, strict=True):
                await _until(outcome.due)
                group.create_task(one(request, outcome))

    cpu = time.process_time()
    try:
        interrupted = await _until_stopped(all_of_them(), stop)
    finally:
        ended = time.perf_counter()
        cpu = time.process_time() - cpu
        gc.unfreeze()
        if collected:
            gc.enable()
    return Played(outcomes, began, ended, cpu, interrupted)


async def _until(when: float) -> None:
    """Sleeps until ``when`` and never less: timers of a loop may be early by a millisecond."""
    while (delay := when - time.perf_counter()) > 0:
        await asyncio.sleep(delay)


async def _until_stopped(work: Coroutine[None, None, None], stop: asyncio.Event | None) -> bool:
    """Does ``work``; whether ``stop`` was set before it was done."""
    doing = asyncio.ensure_future(work)
    stopped = asyncio.ensure_future((stop or asyncio.Event()).wait())
    try:
        await asyncio.wait({doing, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            doing.result()
            return False
        return True
    finally:
        for task in (doing, stopped):
            task.cancel()
        await asyncio.gather(doing, stopped, return_exceptions=True)
