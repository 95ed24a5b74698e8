"""A trace played on ``farthing serve``, over HTTP on this machine."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from farthing.bench.records import Record
from farthing.bench.server_process import free_port, running
from farthing.bench.serving.answer import read_answer
from farthing.bench.serving.asked import Asked, request_body
from farthing.bench.serving.http_client import HttpClient, ServerAddress
from farthing.bench.serving.load import Outcome, Played, play
from farthing.bench.trace import RequestTimes, TraceRequest
from farthing.bench.trace_rounds import System
from farthing.errors import FarthingError
from farthing.program.kv_types import KvDtype

SERVER = "server"
"""The name of this system."""

REQUEST_SECONDS = 1800.0


@dataclass(frozen=True, slots=True)
class FarthingServer:
    """How the server is run: model, answers at a time, and their longest context."""

    model: Path
    slots: int
    max_model_len: int
    threads: int
    kv_cache_dtype: KvDtype
    kv_cache_tokens: int
    max_prefill_chunk: int | None = None

    def command(self, port: int, waiting: int) -> list[object]:
        """The command; ``waiting`` requests may come at once."""
        command: list[object] = [sys.executable, "-m", "farthing.cli", "serve", self.model]
        command += ["--served-model-name", SERVER, "--port", port]
        command += ["--threads", self.threads, "--max-num-seqs", self.slots]
        command += ["--max-model-len", self.max_model_len, "--log-level", "warning"]
        command += ["--kv-cache-dtype", self.kv_cache_dtype]
        command += ["--kv-cache-tokens", self.kv_cache_tokens]
        command += ["--max-num-queued-reqs", waiting]
        command += ["--max-num-queued-tokens", waiting * self.max_model_len]
        if self.max_prefill_chunk is not None:
            command += ["--max-prefill-chunk", self.max_prefill_chunk]
        return command


def farthing_system(server: FarthingServer) -> System:
    """The server, started anew for each run."""

    def play_on_it(
        trace: Sequence[TraceRequest], arrivals: Sequence[float]
    ) -> tuple[list[RequestTimes], Record]:
        port = free_port()
        with running("farthing serve", server.command(port, len(trace)), port):
            played = asyncio.run(_play(port, trace, arrivals))
        times = [
            _times(request, arrival, outcome, played.began)
            for request, arrival, outcome in zip(trace, arrivals, played.outcomes, strict=True)
        ]
        return times, {"client_seconds": played.client_seconds}

    return System(SERVER, play_on_it, {"max_prefill_chunk": server.max_prefill_chunk})


async def _play(port: int, trace: Sequence[TraceRequest], arrivals: Sequence[float]) -> Played:
    client = HttpClient(ServerAddress("127.0.0.1", port, secure=False, prefix=""), {})
    requests = [client.request("POST", "/v1/completions", _body(each)) for each in trace]
    order = sorted(range(len(trace)), key=lambda i: arrivals[i])
    try:
        played = await play(
            client,
            [requests[i] for i in order],
            [arrivals[i] for i in order],
            timeout=REQUEST_SECONDS,
        )
    finally:
        await client.close()
    outcomes = dict(zip(order, played.outcomes, strict=True))
    return replace(played, outcomes=[outcomes[i] for i in range(len(trace))])


def _body(request: TraceRequest) -> bytes:
    asked = Asked(request.prompt, request.max_tokens, ignore_eos=request.ignore_eos)
    return request_body(
        asked,
        backend="openai",
        model=SERVER,
        ignore_eos=False,
        logprobs=None,
        extra={"temperature": 0},
    )


def _times(request: TraceRequest, arrival: float, outcome: Outcome, began: float) -> RequestTimes:
    """Raises :class:`FarthingError` for an answer that is an error or has another length."""
    assert outcome.exchange is not None  # nobody interrupts
    answer = read_answer(outcome.exchange, chat=False)
    tokens = answer.output_tokens
    if not answer.success or tokens is None:
        raise FarthingError(f"farthing serve: {answer.error or 'a stream without usage'}")
    if request.ignore_eos and tokens != request.max_tokens:
        raise FarthingError(
            f"farthing serve: {tokens} tokens where {request.max_tokens} were asked for"
        )
    first = answer.started + answer.ttft - began
    return RequestTimes(arrival, first, answer.ended - began, tokens)
