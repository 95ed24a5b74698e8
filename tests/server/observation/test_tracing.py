"""Spans of requests, in memory and to a collector that listens here."""

from __future__ import annotations

import http.server
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, format_span_id, format_trace_id

from farthing.errors import InvalidParameterError
from farthing.openai_protocol.errors import RequestError, generation_error
from farthing.sampling.params import SamplingParams
from farthing.server.observation.observation import Observation
from farthing.server.observation.record import RequestRecord
from farthing.server.observation.tracing import Tracing, start_tracing, traces_url

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
PARENT_ID = "b7ad6b7169203331"


def finished(tracing: Tracing, **headers: str) -> RequestRecord:
    record = RequestRecord.of(
        request_id="r-1", endpoint="/v1/completions", principal="alice", headers=headers
    )
    record.started_at -= 2.0
    params = SamplingParams(n=2, max_tokens=9, temperature=0.5, top_p=0.9)
    record.asks(params, model="m", stream=True, num_prompts=1)
    record.answered()
    record.finish_reasons += ["stop", "length"]
    record.prompt_tokens, record.completion_tokens, record.cached_tokens = 11, 13, 5
    record.queue_seconds, record.prefill_seconds, record.decode_seconds = 0.25, 0.5, 1.0
    observation = Observation(tracing)
    observation.started(record)
    observation.finished(record)
    return record


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def tracing(exporter: InMemorySpanExporter) -> Iterator[Tracing]:
    made = Tracing(SimpleSpanProcessor(exporter), "1.2.3")
    yield made
    made.close()


def only(exporter: InMemorySpanExporter) -> ReadableSpan:
    (span,) = exporter.get_finished_spans()
    return span


def test_a_span_says_what_vllms_do(exporter: InMemorySpanExporter, tracing: Tracing) -> None:
    record = finished(tracing)
    span = only(exporter)
    assert (span.name, span.kind) == ("llm_request", SpanKind.SERVER)
    assert span.attributes is not None
    attributes = dict(span.attributes)
    wanted = {
        "gen_ai.request.id": "r-1",
        "gen_ai.request.n": 2,
        "gen_ai.request.max_tokens": 9,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.top_p": 0.9,
        "gen_ai.response.model": "m",
        "gen_ai.usage.prompt_tokens": 11,
        "gen_ai.usage.completion_tokens": 13,
        "gen_ai.usage.cached_tokens": 5,
        "gen_ai.usage.num_sequences": 2,
        "gen_ai.latency.time_in_queue": 0.25,
        "gen_ai.latency.time_to_first_token": 0.75,
        "gen_ai.latency.time_in_model_prefill": 0.5,
        "gen_ai.latency.time_in_model_decode": 1.0,
        "gen_ai.latency.time_in_model_inference": 1.5,
        "gen_ai.latency.e2e": record.seconds,
        "gen_ai.response.finish_reasons": ("stop", "length"),
        "http.response.status_code": 200,
        "farthing.outcome": "ok",
    }
    assert wanted.items() <= attributes.items()
    assert span.status.status_code is StatusCode.UNSET
    resource = span.resource.attributes
    assert (resource["service.name"], resource["service.version"]) == ("farthing", "1.2.3")


def test_a_span_lies_where_the_request_was(
    exporter: InMemorySpanExporter, tracing: Tracing
) -> None:
    before = time.time_ns()
    record = finished(tracing)
    span = only(exporter)
    assert span.start_time is not None
    assert span.end_time is not None
    assert abs((span.end_time - span.start_time) / 1e9 - record.seconds) < 1e-6
    assert span.start_time < before - 1.9e9
    assert before - 1e8 < span.end_time <= time.time_ns()


def test_the_callers_trace_goes_on(exporter: InMemorySpanExporter, tracing: Tracing) -> None:
    finished(tracing, traceparent=f"00-{TRACE_ID}-{PARENT_ID}-01", tracestate="vendor=x")
    span = only(exporter)
    assert format_trace_id(span.context.trace_id) == TRACE_ID
    assert span.parent is not None
    assert format_span_id(span.parent.span_id) == PARENT_ID
    assert span.context.trace_state["vendor"] == "x"


def test_what_the_caller_does_not_sample_is_not_sampled(
    exporter: InMemorySpanExporter, tracing: Tracing
) -> None:
    finished(tracing, traceparent=f"00-{TRACE_ID}-{PARENT_ID}-00")
    assert not exporter.get_finished_spans()


@pytest.mark.parametrize("header", ["", "nonsense", "00-0-0-01", f"00-{'0' * 32}-{PARENT_ID}-01"])
def test_a_bad_traceparent_begins_a_new_trace(
    exporter: InMemorySpanExporter, tracing: Tracing, header: str
) -> None:
    finished(tracing, traceparent=header)
    assert only(exporter).parent is None


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (generation_error("NaN"), StatusCode.ERROR),
        (RequestError("full", status=429, code="queue_full"), StatusCode.UNSET),
    ],
)
def test_failures_are_errors_and_refusals_are_not(
    exporter: InMemorySpanExporter, tracing: Tracing, error: RequestError, status: StatusCode
) -> None:
    observation = Observation(tracing)
    record = RequestRecord("r", "/v1/completions")
    observation.started(record)
    record.failed(error)
    observation.finished(record)
    span = only(exporter)
    assert span.status.status_code is status
    assert span.attributes is not None
    assert span.attributes["error.type"] == (error.code or error.type)
    assert span.attributes["http.response.status_code"] == error.status
    assert "gen_ai.usage.prompt_tokens" not in span.attributes


def test_the_services_name_may_be_given(
    exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "my-llm")
    tracing = Tracing(SimpleSpanProcessor(exporter), "1")
    finished(tracing)
    assert only(exporter).resource.attributes["service.name"] == "my-llm"
    tracing.close()


class Collector:
    """Takes spans at /v1/traces."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.spans: list[str] = []
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.paths.append(self.path)
                for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                    for scope in resource.scope_spans:
                        collector.spans += [span.name for span in scope.spans]
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Silent."""

        self.server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self._thread = threading.Thread(target=self.server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self._thread.join()
        self.server.server_close()


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


def test_spans_reach_a_collector(collector: Collector) -> None:
    tracing = start_tracing(collector.url, "1")
    for _ in range(3):
        finished(tracing)
    tracing.close(10)
    assert collector.spans == ["llm_request"] * 3
    assert set(collector.paths) == {"/v1/traces"}


def test_a_collector_that_is_not_there_holds_up_nobody(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")  # seconds of tries
    url = collector.url
    collector.server.socket.close()
    others = set(threading.enumerate())
    tracing = start_tracing(url, "1")
    began = time.monotonic()
    for _ in range(100):
        finished(tracing)
    assert time.monotonic() - began < 2
    tracing.close(0.2)
    assert time.monotonic() - began < 4
    for thread in set(threading.enumerate()) - others:
        thread.join(20)
        assert not thread.is_alive()
    assert "Failed to export" in caplog.text, "it is said that nothing was sent"


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("http://host:4318", "http://host:4318/v1/traces"),
        ("http://host:4318/", "http://host:4318/v1/traces"),
        ("https://host/otlp/v1/traces", "https://host/otlp/v1/traces"),
    ],
)
def test_the_path_is_added_where_there_is_none(endpoint: str, url: str) -> None:
    assert traces_url(endpoint) == url


@pytest.mark.parametrize(
    "endpoint", ["", "host:4318", "grpc://host:4317", "ftp://host", "http://", "http://h:99999999"]
)
def test_what_is_no_http_url_is_refused(endpoint: str) -> None:
    with pytest.raises(InvalidParameterError, match="--otlp-traces-endpoint") as raised:
        start_tracing(endpoint, "1")
    assert "http or https" in str(raised.value)


def test_without_the_extra_it_is_said_what_to_install() -> None:
    script = """
import sys
for name in ("opentelemetry", "opentelemetry.sdk", "opentelemetry.sdk.trace"):
    sys.modules[name] = None
from farthing.errors import FarthingError
from farthing.server.observation.tracing import start_tracing
try:
    start_tracing("http://localhost:4318", "1")
except FarthingError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert "pip install 'farthing[otel]'" in done.stdout
    assert len(done.stdout.splitlines()) == 1
