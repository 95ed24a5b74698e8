"""Spans of requests for OpenTelemetry; needs the extra ``otel``."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from farthing.errors import FarthingError, InvalidParameterError
from farthing.server.observation.record import RequestRecord

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor

SPAN_NAME = "llm_request"
TRACES_PATH = "/v1/traces"
"""Where a collector takes spans over HTTP."""


class Tracing:
    """A span for each generating request, with vLLM's attributes, below its caller's span if any.

    Spans are sent from a thread of their own; those that a collector does not take are lost.
    """

    def __init__(self, processor: SpanProcessor, version: str) -> None:
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        ours = Resource({"service.name": "farthing", "service.version": version})
        self._provider = TracerProvider(
            resource=Resource.create().merge(ours).merge(OTELResourceDetector().detect()),
            shutdown_on_exit=False,  # close() ends it, in bounded time
        )
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("farthing.server", version)
        self._propagator = TraceContextTextMapPropagator()

    def started(self, record: RequestRecord) -> None:
        """Its span is made when all is known of it."""

    def finished(self, record: RequestRecord) -> None:
        """Makes the span of a request that has ended."""
        from opentelemetry.trace import SpanKind, Status, StatusCode

        assert record.ended_at is not None
        now, clock = time.time_ns(), time.monotonic()
        span = self._tracer.start_span(
            SPAN_NAME,
            context=self._propagator.extract(_carrier(record)),
            kind=SpanKind.SERVER,
            attributes=_attributes(record),
            start_time=now - round((clock - record.started_at) * 1e9),
        )
        if record.outcome == "failed":
            span.set_status(Status(StatusCode.ERROR, record.error_code or record.error_type))
        span.end(now - round((clock - record.ended_at) * 1e9))

    def close(self, patience: float = 2.0) -> None:
        """Sends what there is, unless that takes longer than ``patience`` seconds."""
        closing = threading.Thread(target=self._provider.shutdown, daemon=True)
        closing.start()
        closing.join(patience)


def start_tracing(endpoint: str, version: str) -> Tracing:
    """Sends spans to the OTLP collector at ``endpoint``, over HTTP.

    The path is ``/v1/traces`` if the URL has none. Headers, sampling and the service's name are
    taken from OpenTelemetry's own variables (``OTEL_EXPORTER_OTLP_HEADERS`` and so on).

    Raises :class:`InvalidParameterError` for an endpoint that is no HTTP URL,
    :class:`FarthingError` without the extra.
    """
    url = traces_url(endpoint)
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise FarthingError(
            "--otlp-traces-endpoint needs OpenTelemetry's SDK and its exporter: "
            "pip install 'farthing[otel]'"
        ) from None
    return Tracing(BatchSpanProcessor(OTLPSpanExporter(endpoint=url)), version)


def traces_url(endpoint: str) -> str:
    """``endpoint`` as the URL that spans are posted to. Raises InvalidParameterError."""
    try:
        parts = urlsplit(endpoint)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise InvalidParameterError(
            f"--otlp-traces-endpoint {endpoint!r}: an http or https URL is needed, such as "
            f"http://localhost:4318{TRACES_PATH}; OTLP over gRPC is not spoken"
        )
    return endpoint if parts.path.strip("/") else parts._replace(path=TRACES_PATH).geturl()


def _carrier(record: RequestRecord) -> dict[str, str]:
    given = {"traceparent": record.traceparent, "tracestate": record.tracestate}
    return {name: value for name, value in given.items() if value is not None}


def _attributes(record: RequestRecord) -> dict[str, Any]:
    """What is known, under the names vLLM uses."""
    known: dict[str, Any] = {
        "gen_ai.request.id": record.request_id,
        "gen_ai.request.model": record.model or None,
        "gen_ai.response.model": record.model or None,
        "http.route": record.endpoint,
        "http.response.status_code": record.status,
        "farthing.outcome": record.outcome,
        "farthing.key_name": record.principal or None,
        "error.type": record.error_code or record.error_type,
    }
    if record.knows_body:
        known |= {
            "gen_ai.request.n": record.n,
            "gen_ai.request.max_tokens": record.max_tokens,
            "gen_ai.request.temperature": record.temperature,
            "gen_ai.request.top_p": record.top_p,
        }
    if record.knows_answer:
        known |= {
            "gen_ai.response.finish_reasons": tuple(record.finish_reasons),
            "gen_ai.usage.prompt_tokens": record.prompt_tokens,
            "gen_ai.usage.completion_tokens": record.completion_tokens,
            "gen_ai.usage.cached_tokens": record.cached_tokens,
            "gen_ai.usage.num_sequences": len(record.finish_reasons),
            "gen_ai.latency.time_in_queue": record.queue_seconds,
            "gen_ai.latency.time_in_model_prefill": record.prefill_seconds,
            "gen_ai.latency.time_in_model_decode": record.decode_seconds,
            "gen_ai.latency.time_in_model_inference": record.prefill_seconds
            + record.decode_seconds,
        }
    known["gen_ai.latency.time_to_first_token"] = record.time_to_first_token
    known["gen_ai.latency.e2e"] = record.seconds
    return {name: value for name, value in known.items() if value is not None}
