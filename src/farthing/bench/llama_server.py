"""A trace played on llama.cpp's server, over HTTP on this machine."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farthing.bench.llama_cpp import kv_options, version_of
from farthing.bench.records import Record, model_name
from farthing.bench.server_process import free_port, running
from farthing.bench.trace import RequestTimes, TraceRequest
from farthing.bench.trace_rounds import System
from farthing.errors import FarthingError
from farthing.program.kv_types import KvDtype

REQUEST_SECONDS = 1800


@dataclass(frozen=True, slots=True)
class LlamaServer:
    """How the server is run: its program, a GGUF file, places for requests."""

    program: Path
    model: Path
    slots: int
    slot_tokens: int  # context of each
    threads: int
    kv_cache_dtype: KvDtype = "fp16"

    @contextlib.contextmanager
    def running(self) -> Iterator[int]:
        """Starts it, gives its port when it is ready, ends it.

        Raises :class:`FarthingError` with its last line when it does not become ready.
        """
        port = free_port()
        command: list[object] = [self.program, "-m", self.model]
        command += ["-t", self.threads, "-tb", self.threads]
        command += ["-np", self.slots, "-c", self.slots * self.slot_tokens]
        command += [*kv_options(self.kv_cache_dtype), "--host", "127.0.0.1", "--port", port]
        with running(str(self.program), command, port):
            yield port


def server_system(server: LlamaServer) -> System:
    """The server, started anew for each run."""

    def play(
        trace: Sequence[TraceRequest], arrivals: Sequence[float]
    ) -> tuple[list[RequestTimes], Record]:
        with server.running() as port:
            return play_on_server(port, trace, arrivals), {}

    facts = {"peer_model": model_name(str(server.model)), "peer": version_of(server.program)}
    return System("llama.cpp", play, facts)


def play_on_server(
    port: int, trace: Sequence[TraceRequest], arrivals: Sequence[float]
) -> list[RequestTimes]:
    """Sends every request at its time, each over a connection of its own, and reads its stream.

    Raises :class:`FarthingError` for an answer that is an error or has another length.
    """
    ready = threading.Barrier(len(trace) + 1)
    start: list[float] = []

    def one(request: TraceRequest, arrival: float) -> RequestTimes:
        ready.wait()
        while not start:
            time.sleep(0.001)
        time.sleep(max(start[0] + arrival - time.perf_counter(), 0))
        first, done, tokens = _stream(port, request)
        return RequestTimes(arrival, first - start[0], done - start[0], tokens)

    with ThreadPoolExecutor(len(trace)) as pool:
        futures = [pool.submit(one, *pair) for pair in zip(trace, arrivals, strict=True)]
        ready.wait()
        start.append(time.perf_counter())
        return [future.result() for future in futures]


def _stream(port: int, request: TraceRequest) -> tuple[float, float, int]:
    """When the first token came and when the last, and how many there were."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=REQUEST_SECONDS)
    body = {
        "prompt": request.prompt,
        "n_predict": request.max_tokens,
        "ignore_eos": request.ignore_eos,
        "temperature": 0,
        "stream": True,
    }
    try:
        connection.request(
            "POST", "/completion", json.dumps(body), {"Content-Type": "application/json"}
        )
        response = connection.getresponse()
        if response.status != 200:
            raise FarthingError(
                f"llama-server: HTTP status {response.status}: {response.read(200)!r}"
            )
        first: float | None = None
        last: dict[str, Any] = {}
        for line in response:
            if not line.startswith(b"data:"):
                continue
            first = first or time.perf_counter()
            last = json.loads(line[5:])
        done = time.perf_counter()
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise FarthingError(f"llama-server: {error!r}") from None
    finally:
        connection.close()
    tokens = last.get("tokens_predicted")
    if first is None or not isinstance(tokens, int):
        raise FarthingError(f"llama-server: a stream ends without tokens_predicted: {last!r:.200}")
    if request.ignore_eos and tokens != request.max_tokens:
        raise FarthingError(
            f"llama-server: {tokens} tokens where {request.max_tokens} were asked for"
        )
    return first, done, tokens
