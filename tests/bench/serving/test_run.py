"""Whole runs against a server that the test scripted."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from farthing.bench.serving.arrivals import Arrivals
from farthing.bench.serving.load import Outcome
from farthing.bench.serving.refusals import RetryPolicy
from farthing.bench.serving.report import error_lines, report_lines
from farthing.bench.serving.result import ServeResult
from farthing.bench.serving.run import serve_benchmark
from farthing.bench.serving.settings import Dataset, ServeSettings
from farthing.errors import FarthingError, InvalidParameterError
from support.scripted_api import ScriptedApi, plain, words_of
from support.scripted_server import (
    STREAM_HEAD,
    Received,
    Step,
    chunk,
    completion_events,
    event,
    response,
    streamed,
)

REFUSED = "429 Too Many Requests"


class Quiet:
    """Remembers the parts of a run; interrupts it when so many requests are over."""

    def __init__(self, interrupt_after: int | None = None) -> None:
        self.parts: list[tuple[str, int]] = []
        self.over = 0
        self.interrupt_after = interrupt_after

    def begin(self, what: str, total: int) -> None:
        self.parts.append((what, total))

    def advance(self, outcome: Outcome) -> None:
        self.over += 1
        if self.over == self.interrupt_after:
            signal.raise_signal(signal.SIGINT)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Eight requests; the n-th asks for n + 1 tokens."""
    path = tmp_path / "trace.json"
    items = [
        {"prompt": f"Question {n}", "max_tokens": n + 1, "arrival": 0.4 - 0.05 * n}
        for n in range(8)
    ]
    path.write_text(json.dumps(items))
    return path


def run(
    server: ScriptedApi, trace: Path, watcher: Quiet | None = None, **settings: Any
) -> ServeResult:
    dataset = Dataset("trace", trace)
    made = ServeSettings(**{"base_url": server.url, "dataset": dataset, **settings})
    return serve_benchmark(made, watcher or Quiet())


def prompts(requests: list[Received]) -> list[str]:
    return [request.json["prompt"] for request in requests]


@pytest.mark.parametrize("backend", ["openai", "openai-chat"])
def test_every_request_is_answered_and_counted(trace: Path, backend: str) -> None:
    watcher = Quiet()
    with ScriptedApi() as server:
        result = run(server, trace, watcher, backend=backend)
    assert (result.metrics.completed, result.metrics.failed) == (8, 0)
    assert result.metrics.total_output_tokens == sum(range(1, 9))
    assert result.metrics.total_input_tokens == 8 * len("Question 0")
    assert [r.answer.text for r in result.requests] == [
        "".join(words_of(request)) for request in sorted(server.generating, key=_number)
    ]
    assert watcher.parts == [("Preparing", 0), ("Requests", 8)]
    assert watcher.over == 8
    assert {request.json["model"] for request in server.generating} == {"tiny"}
    assert all(request.json["ignore_eos"] for request in server.generating)
    assert _number(server.generating[0]) == 0
    assert result.extra["client_cpu_share"] > 0


def _number(request: Received) -> int:
    return int(request.headers["x-request-id"].removeprefix("bench-"))


def test_times_are_those_that_the_server_took(trace: Path) -> None:
    def slow(request: Received, asked: int) -> list[Step]:
        words = words_of(request)
        return [0.1, *streamed(completion_events(words, (1, len(words))), gap=0.03)]

    with ScriptedApi(slow) as server:
        result = run(server, trace)
    for tokens, request in enumerate(result.requests, 1):
        answer = request.answer
        assert answer.ttft >= 0.13
        assert len(answer.itl) == tokens - 1
        assert sum(answer.itl) == pytest.approx(answer.latency - answer.ttft)
        assert answer.latency >= 0.1 + 0.03 * tokens
        assert answer.latency <= result.duration


def test_arrivals_are_kept_to(trace: Path) -> None:
    with ScriptedApi() as server:
        result = run(server, trace, arrivals=Arrivals(burst_size=3, burst_interval=0.15))
        order = prompts(server.generating)
    starts = [request.answer.started - result.began for request in result.requests]
    for number, start in enumerate(starts):
        assert start >= number // 3 * 0.15
    assert {*order[:3]} == {f"Question {n}" for n in range(3)}
    assert [request.due - result.began for request in result.requests] == pytest.approx(
        [0, 0, 0, 0.15, 0.15, 0.15, 0.3, 0.3]
    )


def test_a_trace_may_have_its_own_times(trace: Path) -> None:
    with ScriptedApi() as server:
        result = run(server, trace, self_timed=True)
    assert prompts(server.generating) == [f"Question {n}" for n in reversed(range(8))]
    dues = [request.due - result.began for request in result.requests]
    assert dues == pytest.approx([0.05 * n for n in range(1, 9)])
    trace.write_text('[{"prompt": "a", "max_tokens": 1}]')
    with ScriptedApi() as server, pytest.raises(InvalidParameterError, match="request 0"):
        run(server, trace, self_timed=True)


def test_no_more_are_out_than_may_be(trace: Path) -> None:
    with ScriptedApi(lambda request, asked: [0.03, *plain(request, asked)]) as server:
        result = run(server, trace, max_concurrency=2)
    assert result.metrics.completed == 8
    assert result.metrics.max_concurrent_requests == 2
    assert result.requests[7].queue_time >= 3 * 0.03
    assert len({request.connection for request in server.generating}) == 2


def test_requests_repeat_and_end_where_asked(trace: Path) -> None:
    for count, expected in ((3, 3), (19, 19)):
        with ScriptedApi() as server:
            assert run(server, trace, num_prompts=count).metrics.completed == expected
            assert len(server.generating) == expected
    with ScriptedApi() as server:
        dataset = Dataset("trace", trace, oversample=False)
        assert run(server, trace, num_prompts=19, dataset=dataset).metrics.completed == 8


def test_failures_are_named_and_do_not_count(trace: Path) -> None:
    def script(request: Received, asked: int) -> list[Step]:
        number = _number(request)
        if number < 3:
            return [response({"error": {"message": "too long"}}, "400 Bad Request")]
        if number == 3:
            return [STREAM_HEAD, chunk(completion_events(["a"])[0]), 0.02, "reset"]
        if number == 4:
            error = event({"error": {"message": "engine died"}})
            return streamed([completion_events(["a", "b"])[0], error, event("[DONE]")])
        return plain(request, asked)

    with ScriptedApi(script) as server:
        result = run(server, trace)
    assert (result.metrics.completed, result.metrics.failed) == (3, 5)
    assert result.metrics.total_output_tokens == 6 + 7 + 8
    assert result.errors[0] == ("HTTP 400: too long", 3)
    lines = list(error_lines(result))
    assert lines[0] == "3 failed: HTTP 400: too long"
    assert "1 failed: error in the stream: engine died" in lines
    assert any(line.startswith("1 failed: the connection ended before") for line in lines)
    assert result.requests[3].answer.text == "a"


def refuse_twice(request: Received, asked: int) -> list[Step]:
    """Odd requests are told to come in 0.2 s, then 0.1 s, then are taken."""
    if _number(request) % 2 and asked < 2:
        promise = "0.2" if asked == 0 else "0.1"
        return [response({"error": {"message": "full"}}, REFUSED, Retry_After=promise)]
    return plain(request, asked)


def test_refusals_are_failures_unless_retried(trace: Path) -> None:
    with ScriptedApi(refuse_twice) as server:
        result = run(server, trace)
    assert (result.metrics.completed, result.metrics.failed) == (4, 4)
    facts = result.extra["refusals"]
    assert (facts["http_429"], facts["requests_refused"], facts["taken_later"]) == (4, 4, 0)
    assert facts["retry_after_error_s"] is None
    assert result.errors == [("HTTP 429: full", 4)]


def test_refused_requests_come_when_they_were_told(trace: Path) -> None:
    with ScriptedApi(refuse_twice) as server:
        result = run(server, trace, retries=RetryPolicy(most=2))
    assert (result.metrics.completed, result.metrics.failed) == (8, 0)
    facts = result.extra["refusals"]
    assert (facts["http_429"], facts["requests_refused"]) == (8, 4)
    assert (facts["taken_later"], facts["taken_at_first_retry"]) == (4, 0)
    assert facts["promised_wait_s"] == {"median": 0.2, "p90": pytest.approx(0.2)}
    # Promised 0.2, taken after 0.2 and 0.1 more at the earliest.
    assert facts["actual_wait_s"]["median"] >= 0.3
    error = facts["actual_wait_s"]["median"] - 0.2
    assert facts["retry_after_error_s"]["median"] == pytest.approx(error)
    for number, request in enumerate(result.requests):
        assert request.queue_time >= 0.3 * (number % 2)  # what is waited is no time to a token
    text = "\n".join(report_lines(result))
    assert "HTTP 429 responses:                      8" in text
    assert "Median |actual - promised| (s):" in text


def test_polling_finds_when_there_was_a_place(trace: Path) -> None:
    def script(request: Received, asked: int) -> list[Step]:
        if asked < 3:
            return [response({}, REFUSED, Retry_After="5")]
        return plain(request, asked)

    with ScriptedApi(script) as server:
        result = run(server, trace, retries=RetryPolicy(most=9, poll=0.05))
    facts = result.extra["refusals"]
    assert result.metrics.completed == facts["taken_later"] == 8
    assert result.duration < 5
    actual = facts["actual_wait_s"]["median"]
    assert 0.15 <= actual < 5
    assert facts["retry_after_error_s"]["median"] == pytest.approx(5 - actual)


def test_texts_are_compared_with_those_of_the_same_requests_alone(trace: Path) -> None:
    def script(request: Received, asked: int) -> list[Step]:
        if asked and _number(request) in (2, 5):
            words = words_of(request)
            return streamed(completion_events([words[0], "other"], (1, 2)))
        if _number(request) == 6:
            return [response({}, "500 Internal Server Error")]
        return plain(request, asked)

    watcher = Quiet()
    with ScriptedApi(script) as server:
        result = run(server, trace, watcher, check_text=True, seed=40)
        asked_again = server.generating[8:]
    assert [request.json["seed"] for request in asked_again] == [40, 41, 42, 43, 44, 45, 47]
    assert {request.connection for request in asked_again} == {asked_again[0].connection}
    assert result.text_differs
    check = result.extra["check_text"]
    assert (check["checked"], check["equal"]) == (7, 5)
    assert check["different"] == [
        {"request": 2, "position": len(" Wort0")},
        {"request": 5, "position": len(" Wort0")},
    ]
    assert watcher.parts[-1] == ("Asking again alone", 7)
    assert "Equal, character for character:          5" in "\n".join(report_lines(result))
    with ScriptedApi() as server:
        result = run(server, trace, check_text=True, extra_body={"temperature": 0})
        assert all("seed" not in request.json for request in server.generating)
    assert not result.text_differs


def test_ctrl_c_shows_what_there_is(trace: Path) -> None:
    def script(request: Received, asked: int) -> list[Step]:
        return plain(request, asked) if _number(request) < 3 else [60.0]

    with ScriptedApi(script) as server:
        result = run(server, trace, Quiet(interrupt_after=3), check_text=True)
    assert result.interrupted
    assert (result.metrics.completed, result.metrics.failed) == (3, 0)
    assert (len(result.requests), result.planned) == (3, 8)
    assert result.duration < 30
    assert "Interrupted, not answered:               5" in "\n".join(report_lines(result))


def test_ctrl_c_ends_a_check_of_texts(trace: Path) -> None:
    with ScriptedApi() as server:
        result = run(server, trace, Quiet(interrupt_after=11), check_text=True)
    assert result.interrupted
    assert result.metrics.completed == 8
    assert 3 <= result.extra["check_text"]["checked"] < 8
    assert "Interrupted, not answered" not in "\n".join(report_lines(result))


def test_tokens_that_nobody_counted_are_estimated(trace: Path) -> None:
    def script(request: Received, asked: int) -> list[Step]:
        return streamed(completion_events(words_of(request)))

    with ScriptedApi(script) as server:
        result = run(server, trace)
    assert [request.output_tokens for request in result.requests] == list(range(1, 9))
    assert result.extra["output_lens_estimated"] == 8


def test_a_server_that_is_not_ready_is_waited_for(trace: Path) -> None:
    def script(request: Received, asked: int) -> list[Step]:
        if _number(request) == 0 and asked == 0:
            return [response({}, "503 Service Unavailable")]
        return plain(request, asked)

    watcher = Quiet()
    with ScriptedApi(script) as server:
        result = run(server, trace, watcher, ready_timeout=20.0, num_warmups=2)
        asked = [_number(request) for request in server.generating]
    assert result.metrics.completed == 8
    assert asked[:4] == [0, 0, 0, 0]
    assert len(asked) == 2 + 2 + 8
    assert [what for what, _ in watcher.parts] == [
        *("Waiting for the server", "Preparing", "Waiting for an answer", "Warming up", "Requests")
    ]


def test_a_server_that_is_not_there_yet_is_waited_for(trace: Path) -> None:
    with ScriptedApi() as early:
        port = early.port  # free again below
    late = ScriptedApi(port=port)
    timer = threading.Timer(0.7, late.__enter__)
    timer.start()
    try:
        result = run(late, trace, ready_timeout=20.0)
    finally:
        timer.join()
        late.__exit__()
    assert (result.metrics.completed, result.metrics.failed) == (8, 0)


def test_a_server_that_never_gets_ready_is_given_up(trace: Path) -> None:
    with ScriptedApi(lambda request, asked: [response({}, "503 No")]) as server:
        with pytest.raises(FarthingError, match=r"not ready after 0\.5 s: HTTP 503"):
            run(server, trace, ready_timeout=0.5)
        url = server.url
    for ready_timeout in (0.0, 0.2):
        settings = ServeSettings(
            base_url=url, dataset=Dataset("trace", trace), ready_timeout=ready_timeout
        )
        with pytest.raises(FarthingError, match=url):
            serve_benchmark(settings, Quiet())


def test_speculation_is_read_from_the_server(trace: Path) -> None:
    def metrics(scale: int) -> str:
        names = {"num_drafts": 10, "num_draft_tokens": 40, "num_accepted_tokens": 15}
        lines = [
            f'vllm:spec_decode_{name}_total{{engine="{engine}",model_name="m"}} {value * scale}.0'
            for name, value in names.items()
            for engine in "01"
        ]
        for position, value in enumerate((9, 6)):
            labels = f'{{engine="0",position="{position}"}}'
            name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
            lines.append(f"{name}{labels} {value * scale}.0")
        return "# HELP x y\n" + "\n".join(lines) + "\nvllm:spec_decode_num_drafts_created 17e8\n"

    with ScriptedApi(metrics=[metrics(1), metrics(3)]) as server:
        result = run(server, trace)
    assert result.speculation == {
        "spec_decode_acceptance_rate": 37.5,
        "spec_decode_acceptance_length": 2.5,
        "spec_decode_num_drafts": 40,
        "spec_decode_draft_tokens": 160,
        "spec_decode_accepted_tokens": 60,
        "spec_decode_per_position_acceptance_rates": [0.45, 0.3],
    }
    assert "Acceptance rate (%):                     37.50" in "\n".join(report_lines(result))
    with ScriptedApi() as server:
        assert run(server, trace).speculation == {}


def test_a_thousand_come_at_once(trace: Path) -> None:
    with ScriptedApi() as server:
        result = run(server, trace, num_prompts=1000)
    assert (result.metrics.completed, result.metrics.failed) == (1000, 0)
    assert result.metrics.total_output_tokens == 125 * sum(range(1, 9))
