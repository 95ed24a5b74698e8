"""A run of the load generator from beginning to end."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from farthing.bench.serving.answer import Answer, read_answer
from farthing.bench.serving.asked import Asked
from farthing.bench.serving.http_client import HttpClient, ServerAddress
from farthing.bench.serving.load import Outcome, Played, play
from farthing.bench.serving.metrics import Timed, compute_metrics
from farthing.bench.serving.preparation import (
    ASIDE_SECONDS,
    bodies_of,
    first_model,
    requests_of,
    vocabulary_of,
    wait_until_answered,
    wait_until_there,
)
from farthing.bench.serving.refusals import refusal_facts, wait_of
from farthing.bench.serving.result import ServeResult, local_date
from farthing.bench.serving.settings import ServeSettings
from farthing.bench.serving.speculation import speculation_counters, speculation_facts
from farthing.bench.serving.text_check import TextCheck, check_texts
from farthing.bench.serving.vocabulary import Vocabulary
from farthing.errors import FarthingError

T = TypeVar("T")


class Watcher(Protocol):
    """Who is told how a run comes on."""

    def begin(self, what: str, total: int) -> None:
        """A part of the run begins; ``total``: requests, 0 where nobody can say."""

    def advance(self, outcome: Outcome) -> None:
        """One of its requests is over."""


@dataclass(frozen=True, slots=True)
class _Prepared:
    model: str
    vocabulary: Vocabulary
    asked: list[Asked]
    requests: list[bytes]
    arrivals: list[float]


def serve_benchmark(settings: ServeSettings, watcher: Watcher) -> ServeResult:
    """Plays a load on a server and says what came of it.

    Ctrl-C while requests are out ends the run with what there is. Raises :class:`FarthingError` and
    ``OSError`` for whatever makes a run impossible; requests that fail are in the result.
    """
    _lift_file_limit()
    return _run(_benchmark(settings, watcher))


def _run(work: Coroutine[Any, Any, T]) -> T:
    try:
        import uvloop
    except ImportError:  # there is none on this system
        return asyncio.run(work)
    return uvloop.run(work)


async def _benchmark(settings: ServeSettings, watcher: Watcher) -> ServeResult:
    address = ServerAddress.from_url(settings.base_url)
    headers = dict(settings.headers)
    if settings.api_key:
        headers.setdefault("Authorization", f"Bearer {settings.api_key}")
    client = HttpClient(address, headers, verify=settings.verify_tls)
    try:
        prepared = await _prepare(settings, client, watcher)
        timeout = settings.request_timeout
        if settings.num_warmups:
            watcher.begin("Warming up", settings.num_warmups)
            await play(
                client,
                prepared.requests[:1] * settings.num_warmups,
                [0.0] * settings.num_warmups,
                timeout=timeout,
                max_concurrency=settings.max_concurrency,
                progress=watcher.advance,
            )
        before = await speculation_counters(client, ASIDE_SECONDS)
        with _stop_signal() as stop:
            watcher.begin("Requests", len(prepared.requests))
            date = local_date()
            played = await play(
                client,
                prepared.requests,
                prepared.arrivals,
                timeout=timeout,
                max_concurrency=settings.max_concurrency,
                policy=settings.retries,
                progress=watcher.advance,
                stop=stop,
            )
            after = await speculation_counters(client, ASIDE_SECONDS)
            check = None
            answers = [
                None if o.exchange is None else read_answer(o.exchange, settings.chat)
                for o in played.outcomes
            ]
            if settings.check_text and not played.interrupted:
                watcher.begin(
                    "Asking again alone", sum(a is not None and a.success for a in answers)
                )
                check = await check_texts(
                    client,
                    prepared.requests,
                    [answer for answer in answers if answer is not None],
                    chat=settings.chat,
                    timeout=timeout,
                    progress=watcher.advance,
                    stop=stop,
                )
            interrupted = stop.is_set()
        timed, estimated = await _count_tokens(prepared, played, answers)
    finally:
        await client.close()
    return _result(
        settings,
        prepared,
        played,
        timed,
        date=date,
        interrupted=interrupted,
        estimated=estimated,
        check=check,
        speculation=speculation_facts(before, after),
    )


async def _prepare(settings: ServeSettings, client: HttpClient, watcher: Watcher) -> _Prepared:
    if settings.ready_timeout > 0:
        watcher.begin("Waiting for the server", 0)
        await wait_until_there(client, settings.ready_timeout)
    watcher.begin("Preparing", 0)
    model = settings.model or await first_model(client)
    vocabulary = vocabulary_of(settings, client, model)
    asked = await requests_of(settings, vocabulary)
    requests = [
        client.request(
            "POST", settings.path, body, {"X-Request-Id": f"{settings.request_id_prefix}{number}"}
        )
        for number, body in enumerate(bodies_of(settings, asked, model))
    ]
    if settings.self_timed:
        arrivals = [each.arrival or 0.0 for each in asked]
    else:
        arrivals = settings.arrivals.times(len(asked), settings.seed)
    if settings.ready_timeout > 0:
        watcher.begin("Waiting for an answer", 0)
        await wait_until_answered(
            client, requests[0], chat=settings.chat, patience=settings.ready_timeout
        )
    return _Prepared(model, vocabulary, asked, requests, arrivals)


async def _count_tokens(
    prepared: _Prepared, played: Played, answers: Sequence[Answer | None]
) -> tuple[list[Timed], int]:
    """The requests that are over, and of how many the server did not count the tokens.

    Theirs are counted by the vocabulary, or are taken for as many as there were chunks.
    """
    timed, estimated = [], 0
    for asked, outcome, answer in zip(prepared.asked, played.outcomes, answers, strict=True):
        if answer is None:
            continue
        outputs = answer.output_tokens or 0
        if answer.success and answer.output_tokens is None:
            estimated += 1
            outputs = await _estimate(prepared.vocabulary, answer)
        inputs = answer.prompt_tokens
        if inputs is None:
            inputs = asked.input_tokens or 0
        timed.append(Timed(answer, outcome.due, inputs, outputs if answer.success else 0))
    return timed, estimated


async def _estimate(vocabulary: Vocabulary, answer: Answer) -> int:
    with contextlib.suppress(FarthingError):  # the server has no such service
        return len(await vocabulary.encode(answer.text))
    return answer.chunks


def _result(
    settings: ServeSettings,
    prepared: _Prepared,
    played: Played,
    timed: list[Timed],
    *,
    date: str,
    interrupted: bool,
    estimated: int,
    check: TextCheck | None,
    speculation: dict[str, Any],
) -> ServeResult:
    duration = max(played.ended - played.began, 1e-9)
    waits = [
        wait
        for o in played.outcomes
        if o.exchange is not None and o.exchange.status == 200
        if (wait := wait_of(o.refusals, o.exchange.started)) is not None
    ]
    chunks = sum(len(o.exchange.reads) for o in played.outcomes if o.exchange is not None)
    extra = {
        "arrivals": "as the trace has them"
        if settings.self_timed
        else settings.arrivals.describe(),
        "interrupted": interrupted,
        "refusals": refusal_facts([o.refusals for o in played.outcomes], waits),
        "output_lens_estimated": estimated,
        "client_cpu_share": played.client_seconds / duration,
        "client_cpu_us_per_chunk": played.client_seconds / max(chunks, 1) * 1e6,
        "check_text": None if check is None else check.as_json(),
    }
    return ServeResult(
        settings=settings,
        model=prepared.model,
        tokenizer=prepared.vocabulary.name,
        date=date,
        began=played.began,
        duration=duration,
        requests=timed,
        metrics=compute_metrics(
            timed,
            duration,
            names=settings.metrics,
            percentiles=settings.percentiles,
            goodput=settings.goodput,
        ),
        planned=len(prepared.requests),
        interrupted=interrupted,
        speculation=speculation,
        extra=extra,
    )


@contextlib.contextmanager
def _stop_signal() -> Iterator[asyncio.Event]:
    """An event that Ctrl-C sets, where this thread is the one that signals come to."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    try:
        loop.add_signal_handler(signal.SIGINT, stop.set)
    except (ValueError, RuntimeError, NotImplementedError):
        yield stop
        return
    try:
        yield stop
    finally:
        loop.remove_signal_handler(signal.SIGINT)


def _lift_file_limit() -> None:
    """As many connections as the system lets this process have; there may be 1,000 and more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
