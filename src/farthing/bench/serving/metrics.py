"""Figures of a run, as vLLM's ``bench serve`` defines them. Times in seconds unless named ms."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from farthing.bench.serving.answer import Answer

REQUEST_METRICS = ("ttft", "tpot", "itl", "e2el")
QUEUE_METRICS = ("client_queue_time", "e2el_including_client_queue")
METRICS = (*REQUEST_METRICS, *QUEUE_METRICS)
GOODPUT_METRICS = ("ttft", "tpot", "e2el")


@dataclass(frozen=True, slots=True)
class Timed:
    """A request with its answer, as the figures see it."""

    answer: Answer
    due: float  # when it was to be sent, of time.perf_counter
    input_tokens: int
    output_tokens: int  # 0 if it failed

    @property
    def tpot(self) -> float | None:
        """Seconds a token after the first; None where there is no second."""
        if self.output_tokens < 2:
            return None
        return (self.answer.latency - self.answer.ttft) / (self.output_tokens - 1)

    @property
    def queue_time(self) -> float:
        """From its time until the attempt that brought this answer began."""
        return self.answer.started - self.due


@dataclass(frozen=True, slots=True)
class Statistics:
    """Of one metric, in milliseconds. Zeros where there are no values."""

    mean: float
    median: float
    std: float  # of all values, not of a sample
    percentiles: dict[float, float]

    @classmethod
    def of(cls, seconds: Sequence[float], percentiles: Sequence[float]) -> Statistics:
        """Of values in seconds; percentiles by linear interpolation."""
        values = np.asarray(seconds or [0.0]) * 1000
        return cls(
            float(np.mean(values)),
            float(np.median(values)),
            float(np.std(values)),
            {p: float(np.percentile(values, p)) for p in percentiles},
        )


@dataclass(frozen=True, slots=True)
class Metrics:
    """Of all requests of a run. Only whole answers count, but for ``failed``."""

    completed: int
    failed: int
    total_input_tokens: int
    total_output_tokens: int
    request_throughput: float  # a second, like all throughputs
    request_goodput: float | None  # None: no objectives
    output_throughput: float
    total_token_throughput: float
    max_output_tokens_per_s: float
    max_concurrent_requests: int
    statistics: dict[str, Statistics]


def compute_metrics(
    requests: Sequence[Timed],
    duration: float,
    *,
    names: Sequence[str],
    percentiles: Sequence[float],
    goodput: Mapping[str, float],
) -> Metrics:
    """The figures of ``requests``, which took ``duration`` seconds in all.

    ``names``: metrics to take statistics of. ``goodput``: the most milliseconds of ``ttft``,
    ``tpot`` and ``e2el`` that a request is good with.
    """
    good = [request for request in requests if request.answer.success]
    values = {
        "ttft": [request.answer.ttft for request in good],
        "tpot": [tpot for request in good if (tpot := request.tpot) is not None],
        "itl": [gap for request in good for gap in request.answer.itl],
        "e2el": [request.answer.latency for request in good],
        "client_queue_time": [request.queue_time for request in good],
        "e2el_including_client_queue": [
            request.answer.latency + request.queue_time for request in good
        ],
    }
    inputs = sum(request.input_tokens for request in good)
    outputs = sum(request.output_tokens for request in good)
    within = sum(_is_within(request, goodput) for request in good)
    return Metrics(
        completed=len(good),
        failed=len(requests) - len(good),
        total_input_tokens=inputs,
        total_output_tokens=outputs,
        request_throughput=len(good) / duration,
        request_goodput=within / duration if goodput else None,
        output_throughput=outputs / duration,
        total_token_throughput=(inputs + outputs) / duration,
        max_output_tokens_per_s=float(_most_chunks_in_a_second([r.answer for r in good])),
        max_concurrent_requests=_most_at_a_time([r.answer for r in good]),
        statistics={name: Statistics.of(values[name], percentiles) for name in names},
    )


def _is_within(request: Timed, goodput: Mapping[str, float]) -> bool:
    measured = {
        "ttft": request.answer.ttft,
        "tpot": request.tpot or 0.0,
        "e2el": request.answer.latency,
    }
    return all(measured[name] * 1000 <= most for name, most in goodput.items())


def _most_chunks_in_a_second(answers: Sequence[Answer]) -> int:
    """Of the seconds counted from the first request: chunks, each taken for a token."""
    if not answers:
        return 0
    begin = min(answer.started for answer in answers)
    end = max(answer.ended for answer in answers)
    seconds = np.zeros(math.ceil(end - begin) + 1, np.int64)
    for answer in answers:
        times = answer.started + answer.ttft + np.cumsum([0.0, *answer.itl]) - begin
        np.add.at(seconds, np.clip(times.astype(np.int64), 0, len(seconds) - 1), 1)
    return int(seconds.max())


def _most_at_a_time(answers: Sequence[Answer]) -> int:
    """Requests between start and last token; one that ends as another starts is no neighbour."""
    events = [(answer.started, 1) for answer in answers]
    events += [(answer.ended, -1) for answer in answers]
    now = most = 0
    for _, change in sorted(events):
        now += change
        most = max(most, now)
    return most
