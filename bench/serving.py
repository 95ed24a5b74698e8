"""How evenly a server streams, and who disturbs it.

    python bench/serving.py MODEL [--streams 32] [--tokens 200] [--clients 8] [--rounds 5]

Starts ``farthing serve``. Each round, one after the other: streams alone, and beside clients
that have prompts of 8,000 tokens tokenized without pause. Printed: the median step and the gaps
between steps as the engine tells them, and the gaps between the tokens of a stream as a client sees
them, of the time in which all streams ran and no prompt was read. Last, the CPU of an idle server.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import psutil

from farthing.bench.server_process import free_port, running
from farthing.bench.serving.event_stream import events
from farthing.bench.serving.http_client import HttpClient, ServerAddress

IDLE_SECONDS = 20
LONG_TOKENS = 8000
SENTENCE = "The price of bread was fixed by law at four for a penny, or one for a farthing. "


async def round_of(port: int, args: argparse.Namespace, clients: int) -> dict[str, float]:
    """One measurement; times in milliseconds."""
    client = HttpClient(ServerAddress("127.0.0.1", port, secure=False, prefix=""), {})
    bodies = [
        {
            "prompt": [100 + stream, 200, 300],
            "max_tokens": args.tokens,
            "ignore_eos": True,
            "temperature": 0,
            "stream": True,
        }
        for stream in range(args.streams)
    ]
    requests = [
        client.request("POST", "/v1/completions", json.dumps(body).encode()) for body in bodies
    ]
    long = json.dumps({"prompt": SENTENCE * (LONG_TOKENS * 4 // len(SENTENCE))}).encode()
    tokenize = client.request("POST", "/tokenize", long)
    began = time.monotonic()
    counts = []

    async def tokenizing() -> None:
        while True:
            exchange = await client.send(tokenize, 60)
            assert exchange.status == 200, exchange.problem
            counts.append(json.loads(exchange.body)["count"])

    others = [asyncio.create_task(tokenizing()) for _ in range(clients)]
    exchanges = await asyncio.gather(*(client.send(request, 600) for request in requests))
    seconds = time.monotonic() - began
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    told = await client.send(client.request("GET", "/debug/steps"), 60)
    steps = [step for step in json.loads(told.body)["steps"] if step[0] >= began]
    full = [a for a, b in pairwise(steps) if a[2] == b[2] == args.streams and a[3] == b[3] == 0]
    gaps = [
        (b[0] - a[1]) * 1e3
        for a, b in pairwise(steps)
        if a[2] == b[2] == args.streams and a[3] == b[3] == 0
    ]
    lengths = [(step[1] - step[0]) * 1e3 for step in full]
    perf = time.perf_counter() - time.monotonic()  # of the client's times to the engine's
    first, last = full[0][0] + perf, full[-1][1] + perf
    between: list[float] = []
    for exchange in exchanges:
        assert exchange.status == 200, exchange.problem
        times = [at for at, data in events(exchange.reads) if first <= at <= last]
        between += [(b - a) * 1e3 for a, b in pairwise(times)]
    await client.close()
    return {
        "step": statistics.median(lengths),
        "gap p99": float(np.percentile(gaps, 99)),
        "itl p50": statistics.median(between),
        "itl p99": float(np.percentile(between, 99)),
        "tokenized a second": len(counts) / seconds,
        "tokens of a prompt": statistics.median(counts) if counts else 0,
    }


def idle(server: psutil.Process) -> float:
    """CPU of a server and its engine that have nothing to do, in percent of a core."""
    both = [server, *server.children(recursive=True)]
    before = sum(sum(each.cpu_times()[:2]) for each in both)
    time.sleep(IDLE_SECONDS)
    return (sum(sum(each.cpu_times()[:2]) for each in both) - before) / IDLE_SECONDS * 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    port = free_port()
    command: list[object] = [sys.executable, "-m", "farthing.cli", "serve", args.model]
    command += ["--port", port, "--threads", args.threads, "--max-num-seqs", args.streams]
    command += ["--log-level", "warning", "--debug-endpoints"]
    with running("farthing serve", command, port):
        for number in range(1, args.rounds + 1):
            for clients in (0, args.clients):
                found = asyncio.run(round_of(port, args, clients))
                shares = (
                    f"gap p99 {found['gap p99'] / found['step']:.2%} of a step, "
                    f"itl p99 {found['itl p99'] / found['step']:.2f} of it"
                )
                facts = ", ".join(f"{name} {value:.2f}" for name, value in found.items())
                print(f"round {number}, {clients} clients: {facts}; {shares}", flush=True)
        (server,) = psutil.Process().children()
        print(f"idle: {idle(server):.2f} % of a core")


if __name__ == "__main__":
    main()
