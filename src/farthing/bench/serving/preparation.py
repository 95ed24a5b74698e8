"""Before the run: which model, which requests, and whether the server answers at all."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence

from farthing.bench.serving.answer import read_answer
from farthing.bench.serving.asked import Asked, request_body
from farthing.bench.serving.datasets import (
    custom_requests,
    oversampled,
    sharegpt_requests,
    trace_requests,
)
from farthing.bench.serving.http_client import HttpClient
from farthing.bench.serving.random_prompts import random_prompts, repeated_prefixes
from farthing.bench.serving.settings import (
    DEFAULT_CUSTOM_OUTPUT_LEN,
    DEFAULT_NUM_PROMPTS,
    ServeSettings,
)
from farthing.bench.serving.vocabulary import LocalVocabulary, ServerVocabulary, Vocabulary
from farthing.errors import FarthingError, InvalidParameterError

ASIDE_SECONDS = 60.0
"""What a question that is not part of the load may take."""

_READY_INTERVAL = 0.5  # seconds between attempts


async def first_model(client: HttpClient) -> str:
    """The first model that the server lists. Raises :class:`FarthingError`."""
    exchange = await client.send(client.request("GET", "/v1/models"), ASIDE_SECONDS)
    place = f"{client.address.url}/v1/models"
    if exchange.problem is not None:
        problem = exchange.problem
        raise FarthingError(problem if place in problem else f"{place}: {problem}")
    try:
        body = json.loads(exchange.body)
    except (ValueError, RecursionError):
        body = None
    match body:
        case {"data": [{"id": str(name)}, *_]}:
            return name
    raise FarthingError(f"{place}: lists no models; give its name as --model")


def vocabulary_of(settings: ServeSettings, client: HttpClient, model: str) -> Vocabulary:
    """Who counts tokens. Raises what opening a model raises."""
    if settings.tokenizer is None:
        return ServerVocabulary(client, model, ASIDE_SECONDS)
    return LocalVocabulary(settings.tokenizer, settings.tokenizer_name or str(settings.tokenizer))


async def requests_of(settings: ServeSettings, vocabulary: Vocabulary) -> list[Asked]:
    """The requests of a run, in the order in which they are sent. Raises what reading them does."""
    dataset = settings.dataset
    path, count = dataset.path, settings.num_prompts or DEFAULT_NUM_PROMPTS
    if dataset.name == "random":
        return await random_prompts(vocabulary, dataset.random, count, settings.seed)
    if dataset.name == "prefix_repetition":
        return await repeated_prefixes(vocabulary, dataset.prefixes, count, settings.seed)
    assert path is not None
    if dataset.name == "sharegpt":
        asked = await sharegpt_requests(path, vocabulary, count, dataset.output_len, settings.seed)
    elif dataset.name == "custom":
        asked = custom_requests(path, dataset.output_len or DEFAULT_CUSTOM_OUTPUT_LEN)
    else:
        asked = trace_requests(path)
    if settings.self_timed:
        return _in_order(asked[: settings.num_prompts])
    if settings.num_prompts is not None and dataset.oversample:
        return oversampled(asked, count)
    return asked[: settings.num_prompts]


def _in_order(asked: Sequence[Asked]) -> list[Asked]:
    for number, each in enumerate(asked):
        if each.arrival is None:
            raise InvalidParameterError(
                f"--self-timed: request {number} of the trace does not say its arrival"
            )
    return sorted(asked, key=lambda each: each.arrival or 0.0)


def bodies_of(settings: ServeSettings, asked: Sequence[Asked], model: str) -> list[bytes]:
    """The bodies of the requests.

    To have a text checked, each gets a seed of its own unless it has one or is greedy.
    """
    bodies = []
    for number, each in enumerate(asked):
        extra = dict(settings.extra_body)
        if settings.check_text and extra.get("temperature") != 0:
            extra.setdefault("seed", settings.seed + number)
        bodies.append(
            request_body(
                each,
                backend=settings.backend,
                model=model,
                ignore_eos=settings.ignore_eos or settings.dataset.name == "random",
                logprobs=settings.logprobs,
                extra=extra,
            )
        )
    return bodies


async def wait_until_there(client: HttpClient, patience: float) -> None:
    """Waits until the server takes connections and is not loading.

    Raises :class:`FarthingError` after ``patience`` seconds.
    """
    request = client.request("GET", "/v1/models")
    until = time.monotonic() + patience
    while True:
        exchange = await client.send(request, max(patience, 1.0))
        if exchange.error is None and exchange.status != 503:
            return
        await _pause(client, until, patience, exchange.problem)


async def wait_until_answered(
    client: HttpClient, request: bytes, *, chat: bool, patience: float
) -> None:
    """Sends ``request`` until it is answered.

    Raises :class:`FarthingError` after ``patience`` seconds.
    """
    until = time.monotonic() + patience
    while True:
        answer = read_answer(await client.send(request, max(patience, 1.0)), chat)
        if answer.success:
            return
        await _pause(client, until, patience, answer.error)


async def _pause(client: HttpClient, until: float, patience: float, problem: str | None) -> None:
    if time.monotonic() + _READY_INTERVAL > until:
        raise FarthingError(f"{client.address.url}: not ready after {patience:g} s: {problem}")
    await asyncio.sleep(_READY_INTERVAL)
