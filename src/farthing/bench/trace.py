"""Requests of many users: what they ask, and when."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from farthing.errors import InvalidParameterError

if TYPE_CHECKING:
    from farthing.tokenization.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One user's request: a prompt, control tokens included, and how long its answer is.

    ``arrival``: seconds from the beginning, where the trace says when it came.
    """

    prompt: str
    max_tokens: int
    ignore_eos: bool
    arrival: float | None = None


def read_trace(path: Path, option: str = "--trace") -> list[TraceRequest]:
    """Requests of a JSON list, or of JSON lines, each with ``prompt`` and ``max_tokens``.

    ``ignore_eos`` is true if not given, so that every program makes as many tokens; ``arrival`` may
    say when a request comes, in seconds. ``option``: what errors call the file's place.

    Raises :class:`InvalidParameterError` naming what is wrong, ``OSError`` if it cannot be read.
    """
    data = path.read_bytes()
    try:
        text = data.decode()
        items = json.loads(text) if text.lstrip().startswith("[") else _lines(text)
    except UnicodeDecodeError as error:
        raise InvalidParameterError(
            f"{option} {path}: byte {error.start} is not UTF-8; requests must be JSON in UTF-8"
        ) from None
    except RecursionError:
        raise InvalidParameterError(f"{option} {path}: its JSON is nested too deep") from None
    except ValueError as error:
        raise InvalidParameterError(f"{option} {path}: {error}") from None
    if not items:
        raise InvalidParameterError(f"{option} {path}: has no requests, at least one is needed")
    return [_request(f"{option} {path}", number, item) for number, item in enumerate(items)]


def _lines(text: str) -> list[Any]:
    items = []
    for number, line in enumerate(text.split("\n"), 1):  # others may stand within a string of JSON
        if line.strip():
            try:
                items.append(json.loads(line))
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from None
    return items


def _request(place: str, number: int, item: Any) -> TraceRequest:
    match item:
        case {"prompt": str(prompt), "max_tokens": int(most), **others} if prompt and most >= 1:
            ignore_eos = others.get("ignore_eos", True)
            arrival: Any = others.get("arrival")
            if isinstance(ignore_eos, bool) and not isinstance(most, bool) and _is_time(arrival):
                return TraceRequest(prompt, most, ignore_eos, arrival)
    raise InvalidParameterError(
        f"{place}: request {number} must have a prompt (text), max_tokens (a whole number from 1) "
        "and, if it likes, ignore_eos (true or false) and arrival (seconds from 0)"
    )


def _is_time(value: Any) -> bool:
    if value is None:
        return True
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and 0 <= value < float("inf")


def longest_sequence(trace: Sequence[TraceRequest], tokenizer: Tokenizer) -> int:
    """Tokens of the longest prompt with its answer."""
    return max(
        len(tokenizer.encode(request.prompt, allow_control=True)) + request.max_tokens
        for request in trace
    )


def all_at_once(count: int) -> list[float]:
    """Arrivals, in seconds from the beginning, of ``count`` requests that come together."""
    return [0.0] * count


def poisson(count: int, rate: float, seed: int) -> list[float]:
    """Arrivals, in seconds, of a Poisson process of ``rate`` requests a second."""
    rng = random.Random(seed)
    arrivals, now = [], 0.0
    for _ in range(count):
        now += rng.expovariate(rate)
        arrivals.append(now)
    return arrivals


@dataclass(frozen=True, slots=True)
class RequestTimes:
    """When a request came, got its first token and was done; seconds from the beginning."""

    arrived: float
    first_token: float
    done: float
    tokens: int


@dataclass(frozen=True, slots=True)
class TraceSummary:
    """What users saw of a trace. Seconds."""

    requests: int
    tokens: int  # generated
    seconds: float  # from the first arrival until all were done
    first_token_mean: float
    first_token_p95: float
    latency_mean: float
    latency_p95: float

    @property
    def tokens_s(self) -> float:
        """Generated tokens a second."""
        return self.tokens / self.seconds

    @property
    def requests_s(self) -> float:
        """Requests answered a second."""
        return self.requests / self.seconds

    def as_json(self) -> dict[str, float]:
        """All of it, for a record."""
        return {
            "requests": self.requests,
            "output_tokens": self.tokens,
            "seconds": self.seconds,
            "output_tokens_s": self.tokens_s,
            "mean_ttft_s": self.first_token_mean,
            "p95_ttft_s": self.first_token_p95,
            "mean_e2el_s": self.latency_mean,
            "p95_e2el_s": self.latency_p95,
        }


def summarize(times: Sequence[RequestTimes]) -> TraceSummary:
    """What users saw of the requests with these ``times``, at least one."""
    first = [each.first_token - each.arrived for each in times]
    whole = [each.done - each.arrived for each in times]
    begin = min(each.arrived for each in times)
    return TraceSummary(
        requests=len(times),
        tokens=sum(each.tokens for each in times),
        seconds=max(each.done for each in times) - begin,
        first_token_mean=sum(first) / len(first),
        first_token_p95=float(np.percentile(first, 95)),
        latency_mean=sum(whole) / len(whole),
        latency_p95=float(np.percentile(whole, 95)),
    )
