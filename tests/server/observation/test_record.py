"""What is kept of a request, and who is told of it."""

from __future__ import annotations

import dataclasses
import logging
import time

import pytest

from farthing.engine.metrics import RequestMetrics
from farthing.engine.outputs import CompletionOutput, RequestOutput, StreamChunk
from farthing.engine.request import FinishReason
from farthing.openai_protocol.errors import RequestError, generation_error
from farthing.sampling.params import SamplingParams
from farthing.server.observation.observation import Observation
from farthing.server.observation.record import RequestRecord

CHAT = "/v1/chat/completions"


def record(**fields: object) -> RequestRecord:
    made = RequestRecord("r1", CHAT, "alice")
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def metrics(prompt: int = 0, new: int = 0, queue: float = 0.0) -> RequestMetrics:
    return RequestMetrics(
        prompt_tokens=prompt,
        completion_tokens=new,
        cached_tokens=prompt // 2,
        preemptions=1,
        queue_seconds=queue,
        prefill_seconds=2 * queue,
        decode_seconds=3 * queue,
    )


def choice(index: int, reason: FinishReason) -> CompletionOutput:
    return CompletionOutput(index, "", [], None, None, reason, None)


def test_only_the_headers_of_the_trace_are_read() -> None:
    headers = {
        "authorization": "Bearer secret-key",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "tracestate": "a=b",
        "cookie": "secret-cookie",
    }
    made = RequestRecord.of(request_id="r", endpoint=CHAT, principal="alice", headers=headers)
    assert made.traceparent == headers["traceparent"]
    assert made.tracestate == "a=b"
    assert "secret" not in repr(dataclasses.asdict(made))


def test_a_stream_and_a_whole_answer_count_the_same() -> None:
    """Two choices of a prompt: its tokens once, theirs each."""
    streamed, whole = record(), record()
    for index in (1, 0):
        streamed.chunk_ended(StreamChunk("x", [7], index=index))  # not its last: nothing
        streamed.chunk_ended(
            StreamChunk("", [], None, "stop", metrics(prompt=10, new=4), index=index)
        )
    both = metrics(prompt=10, new=8)
    both.preemptions = 2
    choices = [choice(0, "stop"), choice(1, "stop")]
    whole.output_ended(RequestOutput("r", None, [], choices, True, both))
    for made in (streamed, whole):
        counts = (made.prompt_tokens, made.completion_tokens, made.cached_tokens, made.preemptions)
        assert counts == (10, 8, 5, 2)
        assert made.finish_reasons == ["stop", "stop"]


def test_prompts_add_up_and_the_longest_wait_counts() -> None:
    made = record()
    for queue in (0.5, 2.0, 1.0):
        outputs = [choice(0, "length")]
        made.output_ended(RequestOutput("r", None, [], outputs, True, metrics(6, 3, queue)))
    assert (made.prompt_tokens, made.completion_tokens) == (18, 9)
    assert (made.queue_seconds, made.prefill_seconds, made.decode_seconds) == (2.0, 4.0, 6.0)
    assert made.time_to_first_token == 6.0, "what the engine says, where nobody saw a token come"


def test_the_first_token_is_the_first() -> None:
    made = record(started_at=time.monotonic() - 5)
    assert made.time_to_first_token is None
    made.first_token()
    first = made.time_to_first_token
    assert first is not None
    assert first >= 5
    made.first_token()
    assert made.time_to_first_token == first


@pytest.mark.parametrize(
    ("error", "answered", "status", "outcome"),
    [
        (RequestError("no", status=429, code="queue_full"), None, 429, "refused"),
        (RequestError("no", status=503, code="loading"), None, 503, "refused"),
        (RequestError("no"), None, 400, "refused"),
        (generation_error("NaN"), None, 500, "failed"),
        (generation_error("NaN"), 200, 200, "failed"),
    ],
)
def test_outcome_of_errors(
    error: RequestError, answered: int | None, status: int, outcome: str
) -> None:
    made = record()
    if answered is not None:
        made.answered(answered)
    made.failed(error)
    assert (made.status, made.outcome) == (status, outcome)
    assert (made.error_type, made.error_code) == (error.type, error.code)


def test_outcome_of_a_client_that_left() -> None:
    before, within = record(), record()
    before.left()
    within.answered()
    within.left()
    assert [(r.status, r.outcome) for r in (before, within)] == [(499, "left"), (200, "left")]


def test_outcome_of_answers() -> None:
    assert record(status=200, finish_reasons=["stop", "length"]).outcome == "ok"
    assert record(status=200, finish_reasons=["stop", "error"]).outcome == "failed"


def test_what_was_asked_is_entered() -> None:
    made = record()
    params = SamplingParams(n=3, max_tokens=17, temperature=0.5, top_p=0.9)
    made.asks(params, model="m", stream=True, num_prompts=2)
    fields = made.as_fields()
    assert {k: fields[k] for k in ("n", "max_tokens", "temperature", "top_p")} == {
        "n": 3,
        "max_tokens": 17,
        "temperature": 0.5,
        "top_p": 0.9,
    }
    assert (fields["model"], fields["stream"], fields["prompts"]) == ("m", True, 2)


def test_what_is_not_known_is_left_out() -> None:
    """Of a body that never came, of a prompt that was refused, and of an answer with nothing."""
    slow = record()
    slow.failed(RequestError("too slow", status=408, code="request_timeout"))
    known = {"request_id", "endpoint", "key_name", "outcome", "status", "seconds"}
    known |= {"error_type", "error_code"}
    assert set(slow.as_fields()) == known
    full = record()
    params = SamplingParams(max_tokens=17, temperature=0.5, top_p=0.9)
    full.asks(params, model="m", stream=False, num_prompts=1)
    full.failed(RequestError("no", status=429, code="queue_full"))
    known |= {"model", "stream", "prompts", "n", "max_tokens", "temperature", "top_p"}
    assert set(full.as_fields()) == known
    assert full.as_fields()["stream"] is False
    full.output_ended(RequestOutput("r", None, [], [choice(0, "stop")], True, metrics()))
    known |= {"finish_reasons", "prompt_tokens", "cached_tokens", "completion_tokens"}
    known |= {"preemptions", "queue_seconds", "prefill_seconds", "decode_seconds"}
    assert set(full.as_fields()) == known
    assert full.as_fields()["completion_tokens"] == 0


class Heard:
    def __init__(self) -> None:
        self.heard: list[tuple[str, float | None]] = []

    def started(self, record: RequestRecord) -> None:
        self.heard.append(("started", record.ended_at))

    def finished(self, record: RequestRecord) -> None:
        self.heard.append(("finished", record.ended_at))


def test_everyone_is_told_once_and_the_end_is_known_by_then() -> None:
    heard = Heard()
    observation = Observation(heard)
    made = record(status=200)
    observation.started(made)
    assert observation.load == 1
    observation.finished(made)
    ended = made.ended_at
    observation.finished(made)
    assert heard.heard == [("started", None), ("finished", ended)]
    assert ended is not None
    assert observation.load == 0
    assert observation.counts.ended == {(CHAT, "ok"): 1}


def test_a_listener_that_fails_is_logged_and_hurts_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(Heard):
        def finished(self, record: RequestRecord) -> None:
            raise RuntimeError("disk gone")

    heard = Heard()
    observation = Observation(Broken(), heard)
    made = record()
    observation.started(made)
    with caplog.at_level(logging.ERROR):
        observation.finished(made)
    assert [what for what, _ in heard.heard] == ["started", "finished"]
    assert "disk gone" in caplog.text


def test_refusals_are_counted_by_code() -> None:
    observation = Observation()
    for code, status in (("queue_full", 429), ("queue_full", 429), (None, 400)):
        made = record()
        observation.started(made)
        made.failed(RequestError("no", status=status, code=code))
        observation.finished(made)
    assert observation.counts.refusals == {"queue_full": 2, "invalid_request_error": 1}


def test_prompts_go_nowhere_unless_wanted() -> None:
    seen: list[tuple[str, object]] = []
    wanted = Observation(on_prompt=lambda request_id, prompt: seen.append((request_id, prompt)))
    for observation in (Observation(), wanted):
        observation.prompt(record(), "a secret")
    assert [o.wants_prompts for o in (Observation(), wanted)] == [False, True]
    assert seen == [("r1", "a secret")]
