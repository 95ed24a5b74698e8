"""Figures against the same computed plainly, value by value."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from farthing.bench.serving.answer import Answer
from farthing.bench.serving.metrics import METRICS, Metrics, Timed, compute_metrics


def made_up(seed: int, count: int = 60) -> list[Timed]:
    rng = random.Random(seed)
    requests = []
    for _ in range(count):
        due = 100 + rng.random() * 20
        started = due + rng.choice([0.0, rng.random()])
        gaps = [rng.expovariate(20) for _ in range(rng.randrange(0, 30))]
        first = rng.expovariate(2)
        answer = Answer(started, ttft=first, itl=gaps, latency=first + sum(gaps))
        outputs = len(gaps) + 1 + rng.randrange(3)
        if rng.random() < 0.2:
            answer.error, outputs = "HTTP 500: no", 0
        requests.append(Timed(answer, due, rng.randrange(1, 500), outputs))
    return requests


def percentile(values: list[float], p: float) -> float:
    ordered = sorted(values)
    place = (len(ordered) - 1) * p / 100
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def computed(requests: list[Timed], goodput: dict[str, float] | None = None) -> Metrics:
    return compute_metrics(
        requests, 25.0, names=METRICS, percentiles=(50.0, 90.0, 99.9), goodput=goodput or {}
    )


@pytest.mark.parametrize("seed", range(5))
def test_figures_are_those_of_a_plain_computation(seed: int) -> None:
    requests = made_up(seed)
    metrics = computed(requests)
    good = [r for r in requests if not r.answer.error]
    assert 0 < len(good) < len(requests)
    assert (metrics.completed, metrics.failed) == (len(good), len(requests) - len(good))
    inputs, outputs = sum(r.input_tokens for r in good), sum(r.output_tokens for r in good)
    assert (metrics.total_input_tokens, metrics.total_output_tokens) == (inputs, outputs)
    assert metrics.request_throughput == len(good) / 25
    assert metrics.output_throughput == outputs / 25
    assert metrics.total_token_throughput == (inputs + outputs) / 25
    assert metrics.request_goodput is None
    values = {
        "ttft": [r.answer.ttft for r in good],
        "tpot": [
            (r.answer.latency - r.answer.ttft) / (r.output_tokens - 1)
            for r in good
            if r.output_tokens > 1
        ],
        "itl": [gap for r in good for gap in r.answer.itl],
        "e2el": [r.answer.latency for r in good],
        "client_queue_time": [r.answer.started - r.due for r in good],
        "e2el_including_client_queue": [r.answer.latency + r.answer.started - r.due for r in good],
    }
    for name, seconds in values.items():
        shown = metrics.statistics[name]
        ms = [value * 1000 for value in seconds]
        assert shown.mean == pytest.approx(statistics.fmean(ms))
        assert shown.median == pytest.approx(statistics.median(ms))
        assert shown.std == pytest.approx(statistics.pstdev(ms))
        assert shown.percentiles == {
            p: pytest.approx(percentile(ms, p)) for p in (50.0, 90.0, 99.9)
        }


@pytest.mark.parametrize("seed", range(5))
def test_peaks_are_those_of_a_plain_count(seed: int) -> None:
    requests = made_up(seed)
    metrics = computed(requests)
    answers = [r.answer for r in requests if not r.answer.error]
    begin = min(a.started for a in answers)
    seconds: dict[int, int] = {}
    for answer in answers:
        at = answer.started + answer.ttft
        for gap in [0.0, *answer.itl]:
            at += gap
            seconds[int(at - begin)] = seconds.get(int(at - begin), 0) + 1
    assert metrics.max_output_tokens_per_s == max(seconds.values())
    together = [
        sum(other.started <= answer.started < other.ended for other in answers)
        for answer in answers
    ]
    assert metrics.max_concurrent_requests == max(together)


def test_who_ends_as_another_begins_is_no_neighbour() -> None:
    requests = [Timed(Answer(float(i), ttft=1.0, latency=1.0), float(i), 1, 1) for i in range(4)]
    assert computed(requests).max_concurrent_requests == 1


def test_goodput_wants_every_objective_kept() -> None:
    def request(ttft: float, gap: float) -> Timed:
        return Timed(Answer(0.0, ttft=ttft, itl=[gap], latency=ttft + gap), 0.0, 1, 2)

    requests = [request(0.1, 0.01), request(0.3, 0.01), request(0.1, 0.3), request(0.2, 0.05)]
    requests.append(Timed(Answer(0.0, ttft=0.1, latency=0.1), 0.0, 1, 1))  # has no second token
    requests.append(Timed(Answer(0.0, error="HTTP 500: no"), 0.0, 1, 0))
    assert computed(requests, {"ttft": 200.0}).request_goodput == 4 / 25
    assert computed(requests, {"ttft": 200.0, "tpot": 50.5}).request_goodput == 3 / 25
    assert computed(requests, {"e2el": 111.0}).request_goodput == 2 / 25


def test_nothing_answered_is_zeros() -> None:
    metrics = computed([Timed(Answer(0.0, error="no"), 0.0, 5, 0)])
    assert (metrics.completed, metrics.failed) == (0, 1)
    assert metrics.max_concurrent_requests == metrics.max_output_tokens_per_s == 0
    assert metrics.statistics["ttft"].mean == metrics.statistics["itl"].percentiles[99.9] == 0
