"""Flags of ``farthing serve``: its queue, its life and what it tells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from farthing.cli.serve.option import flag


@dataclass(frozen=True, slots=True)
class QueueFlags:
    """What waits."""

    max_num_queued_reqs: Annotated[
        int | None,
        flag(
            "--max-num-queued-reqs",
            metavar="N",
            help="Requests that wait for a place; beyond them the answer is 429. By default twice "
            "--max-num-seqs, 64 at least.",
        ),
    ] = None
    max_num_queued_tokens: Annotated[
        int | None,
        flag(
            "--max-num-queued-tokens",
            metavar="TOKENS",
            help="Tokens of the prompts that wait; beyond them the answer is 429. By default 4,096 "
            "for each request that may wait, and one prompt as long as the context at least.",
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class LifeFlags:
    """How it ends, and how it is known to live."""

    shutdown_timeout: Annotated[
        float,
        flag(
            "--shutdown-timeout",
            metavar="S",
            min=0.0,
            shows=True,
            help="How long SIGTERM, SIGHUP or Ctrl-C waits for requests that are running.",
        ),
    ] = 60.0
    health_timeout: Annotated[
        float,
        flag(
            "--health-timeout",
            metavar="S",
            min=0.1,
            shows=True,
            help="/health is 503 when no step has ended for so long while work waits.",
        ),
    ] = 30.0
    watchdog_timeout: Annotated[
        float,
        flag(
            "--watchdog-timeout",
            metavar="S",
            min=0.0,
            shows=True,
            help="The server ends with a dump of all stacks when no step has ended for so long; "
            "0: never.",
        ),
    ] = 300.0


@dataclass(frozen=True, slots=True)
class ObservationFlags:
    """What it tells of itself."""

    metrics_compat: Annotated[
        Literal["vllm", "none"],
        flag("--metrics-compat", shows=True, help="Further names in /metrics."),
    ] = "vllm"
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        flag("--log-level", shows=True, help="The least serious records that are written."),
    ] = "info"
    log_format: Annotated[
        Literal["auto", "json", "text"],
        flag("--log-format", shows=True, help="auto: text on a terminal, JSON elsewhere."),
    ] = "auto"
    disable_access_log: Annotated[
        bool,
        flag("--disable-access-log", "--disable-uvicorn-access-log", help="No line a request."),
    ] = False
    enable_log_requests: Annotated[
        bool,
        flag("--enable-log-requests", help="A line for each answer: lengths, times, parameters."),
    ] = False
    log_prompts: Annotated[
        bool, flag("--log-prompts", help="Write the prompts into those lines too.")
    ] = False
    otlp_traces_endpoint: Annotated[
        str | None,
        flag(
            "--otlp-traces-endpoint",
            metavar="URL",
            help="Send OpenTelemetry traces there (pip install 'farthing[otel]').",
        ),
    ] = None
    debug_endpoints: Annotated[
        bool,
        flag("--debug-endpoints", help="Serve /debug/invariants: the engine's books, checked."),
    ] = False
