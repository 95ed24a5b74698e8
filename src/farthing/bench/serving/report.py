"""What a run prints: the block of vLLM's tool, line for line, and what Farthing adds below."""

from __future__ import annotations

import math
from collections.abc import Iterator

from farthing.bench.serving.result import ServeResult

WIDTH = 50
_MOST_ERRORS = 10

_TITLES = {
    "ttft": ("Time to First Token", "TTFT"),
    "tpot": ("Time per Output Token (excl. 1st token)", "TPOT"),
    "itl": ("Inter-token Latency", "ITL"),
    "e2el": ("End-to-end Latency", "E2EL"),
    "client_queue_time": ("Client-side Queueing", "Client Queue Time"),
    "e2el_including_client_queue": (
        "Queue-inclusive End-to-end Latency",
        "E2EL incl. Client Queue",
    ),
}


def report_lines(result: ServeResult) -> Iterator[str]:
    """The lines of the block."""
    settings, metrics = result.settings, result.metrics
    yield _head(" Serving Benchmark Result ", "=")
    yield _line("Successful requests:", metrics.completed)
    yield _line("Failed requests:", metrics.failed)
    missing = result.planned - len(result.requests)
    if missing:
        yield _line("Interrupted, not answered:", missing)
    if settings.max_concurrency is not None:
        yield _line("Maximum request concurrency:", settings.max_concurrency)
    if not math.isinf(settings.arrivals.rate):
        yield _line("Request rate configured (RPS):", settings.arrivals.rate)
    yield _line("Benchmark duration (s):", float(result.duration))
    yield _line("Total input tokens:", metrics.total_input_tokens)
    yield _line("Total generated tokens:", metrics.total_output_tokens)
    yield _line("Request throughput (req/s):", metrics.request_throughput)
    if metrics.request_goodput is not None:
        yield _line("Request goodput (req/s):", metrics.request_goodput)
    yield _line("Output token throughput (tok/s):", metrics.output_throughput)
    yield _line("Peak output token throughput (tok/s):", metrics.max_output_tokens_per_s)
    yield _line("Peak concurrent requests:", float(metrics.max_concurrent_requests))
    yield _line("Total token throughput (tok/s):", metrics.total_token_throughput)
    for name, each in metrics.statistics.items():
        title, short = _TITLES[name]
        yield _head(title, "-")
        yield _line(f"Mean {short} (ms):", each.mean)
        yield _line(f"Median {short} (ms):", each.median)
        for percentile, value in each.percentiles.items():
            yield _line(f"P{percentile:g} {short} (ms):", value)
    yield from _speculation(result)
    yield from _refusals(result)
    yield from _farthing(result)
    yield "=" * WIDTH


def error_lines(result: ServeResult) -> Iterator[str]:
    """Why requests failed, the most frequent messages first."""
    errors = result.errors
    for message, count in errors[:_MOST_ERRORS]:
        yield f"{count} failed: {message}"
    if len(errors) > _MOST_ERRORS:
        rest = sum(count for _, count in errors[_MOST_ERRORS:])
        yield f"{rest} failed with {len(errors) - _MOST_ERRORS} other messages"


def _speculation(result: ServeResult) -> Iterator[str]:
    facts = result.speculation
    if not facts:
        return
    yield _head("Speculative Decoding", "-")
    yield _line("Acceptance rate (%):", facts["spec_decode_acceptance_rate"])
    yield _line("Acceptance length:", facts["spec_decode_acceptance_length"])
    yield _line("Drafts:", facts["spec_decode_num_drafts"])
    yield _line("Draft tokens:", facts["spec_decode_draft_tokens"])
    yield _line("Accepted tokens:", facts["spec_decode_accepted_tokens"])
    rates = facts["spec_decode_per_position_acceptance_rates"]
    if rates:
        yield "Per-position acceptance (%):"
    for position, rate in enumerate(rates):
        yield _line(f"  Position {position}:", rate * 100)


def _refusals(result: ServeResult) -> Iterator[str]:
    facts = result.extra["refusals"]
    if not facts["http_429"] + facts["http_503"]:
        return
    yield _head("Refusals", "-")
    yield _line("HTTP 429 responses:", facts["http_429"])
    if facts["http_503"]:
        yield _line("HTTP 503 responses with Retry-After:", facts["http_503"])
    if facts["without_retry_after"]:
        yield _line("Without Retry-After:", facts["without_retry_after"])
    yield _line("Requests refused at least once:", facts["requests_refused"])
    yield _line("Slowest refusal (ms):", facts["slowest_refusal_ms"])
    if facts["retry_after_error_s"] is None:
        return
    yield _line("Taken after all:", facts["taken_later"])
    yield _line("  of them at the first retry:", facts["taken_at_first_retry"])
    for key, name in (
        ("promised_wait_s", "promised wait (s):"),
        ("actual_wait_s", "actual wait (s):"),
        ("retry_after_error_s", "|actual - promised| (s):"),
    ):
        yield _line(f"Median {name}", facts[key]["median"])
        yield _line(f"P90 {name}", facts[key]["p90"])


def _farthing(result: ServeResult) -> Iterator[str]:
    extra = result.extra
    yield _head("This Client", "-")
    yield _line("CPU (% of one core):", extra["client_cpu_share"] * 100)
    yield _line("CPU per chunk (µs):", extra["client_cpu_us_per_chunk"])
    if extra["output_lens_estimated"]:
        yield _line("Answers without a usage chunk:", extra["output_lens_estimated"])
    check = extra["check_text"]
    if check is not None:
        yield _head("Same Text Alone", "-")
        yield _line("Answers asked again alone:", check["checked"])
        yield _line("Equal, character for character:", check["equal"])
        for each in check["different"][:_MOST_ERRORS]:
            yield _line(f"  Request {each['request']} differs at:", each["position"])


def _head(title: str, fill: str) -> str:
    return title.center(WIDTH, fill)


def _line(name: str, value: float | int) -> str:
    shown = f"{value:.2f}" if isinstance(value, float) else str(value)
    return f"{name:<40} {shown:<10}"
