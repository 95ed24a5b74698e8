"""More clients than there is room for, and clients that are none: everybody is answered."""

from __future__ import annotations

import asyncio
import json
import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.control_stream import control_stream
from support.crowds import Crowd, alone, asked, told
from support.raw_http import post
from support.reachable import COMPLETIONS, Reachable, Streaming, hang_up, send_request
from support.server_process import ServerProcess, serving

CONNECTIONS = 1000
PLACES, RUNNING = 64, 8


@pytest.fixture
def many_files() -> Iterator[None]:
    """Room for the sockets of all clients."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 4 * CONNECTIONS:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(4 * CONNECTIONS, hard), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


REFUSED_SECONDS = 1.0
"""In which all who find no place are told so; of the server's processor: others have it too."""


@dataclass
class Answered:
    """A response; seconds from the last byte of its request to its first, and of the processor."""

    response: httpx2.Response
    seconds: float
    processor: float  # that the server had used by then


async def ask(server: ServerProcess, body: dict[str, Any], begin: asyncio.Event) -> Answered:
    """Connects, waits for all others, and asks."""
    reader, writer = await asyncio.open_connection(*server.address)
    await begin.wait()
    raw = json.dumps(body).encode()
    head = (
        f"POST {COMPLETIONS} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(raw)}\r\n\r\n"
    )
    writer.write(head.encode() + raw)
    await writer.drain()
    sent = time.monotonic()
    lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    seconds, processor = time.monotonic() - sent, processor_seconds(server)
    headers = dict(line.split(": ", 1) for line in lines[1:] if line)
    content = await reader.read()
    writer.close()
    if headers.pop("transfer-encoding", None):
        content = b"".join(chunks_of(content))
    response = httpx2.Response(int(lines[0].split()[1]), headers=headers, content=content)
    return Answered(response, seconds, processor)


def processor_seconds(server: ServerProcess) -> float:
    """What the server process alone has used."""
    used = server.process.cpu_times()
    return float(used.user + used.system)


def chunks_of(raw: bytes) -> Iterator[bytes]:
    """The chunks of a whole body."""
    while raw:
        size, _, raw = raw.partition(b"\r\n")
        length = int(size, 16)
        yield raw[:length]
        assert raw[length : length + 2] == b"\r\n"
        raw = raw[length + 2 :]


@contextmanager
def sampled(server: Reachable, *names: str) -> Iterator[dict[str, list[float]]]:
    """What the metrics of those names are, again and again until the block is left."""
    found: dict[str, list[float]] = {name: [] for name in names}
    over = threading.Event()

    def look() -> None:
        with httpx2.Client(base_url=server.url, timeout=60) as client:
            while not over.is_set():
                for line in client.get("/metrics").text.splitlines():
                    name = line.partition("{")[0].split()[0]
                    if name in found:
                        found[name].append(float(line.split()[-1]))
                over.wait(0.1)  # a page takes milliseconds of the processor too

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()


@pytest.fixture
def patient(many_files: None, life_model: Path) -> Iterator[ServerProcess]:
    """A server that lets a thousand clients connect before the first of them asks."""
    places = ("--max-num-seqs", str(RUNNING), "--max-num-queued-reqs", str(PLACES))
    with serving(life_model, *places, "--header-timeout", "60") as server:
        yield server


def test_a_thousand_connections_before_a_queue_of_64(patient: ServerProcess) -> None:
    """X5."""
    used = [seconds_of_a_crowd(patient)]
    while min(used) >= REFUSED_SECONDS and len(used) < 3:  # what else runs can only add to it
        used.append(seconds_of_a_crowd(patient))
    assert min(used) < REFUSED_SECONDS


def seconds_of_a_crowd(server: ServerProcess) -> float:
    """Checks all that a crowd is told; seconds of the processor until the last is refused."""
    bodies = [asked(number, 120) for number in range(CONNECTIONS)]

    async def main() -> tuple[float, list[Answered]]:
        begin = asyncio.Event()
        tasks = [asyncio.create_task(ask(server, body, begin)) for body in bodies]
        while server_connections() < CONNECTIONS:
            await asyncio.sleep(0.02)
        before = processor_seconds(server)
        begin.set()
        return before, await asyncio.gather(*tasks)

    def server_connections() -> int:
        return int(server.metric("farthing_connections"))

    with sampled(server, "farthing_queue_requests", "vllm:num_requests_waiting") as numbers:
        before, answers = asyncio.run(main())
    statuses = [answer.response.status_code for answer in answers]
    assert set(statuses) == {200, 429}
    assert statuses.count(200) >= PLACES
    for answer in answers:
        if answer.response.status_code == 429:
            assert int(answer.response.headers["retry-after"]) >= 1
            assert answer.response.json()["error"]["code"] == "queue_full"
    # That it was full, the 429s say; a busy machine may see it so in none of the samples.
    assert max(numbers["farthing_queue_requests"]) <= PLACES
    assert max(numbers["vllm:num_requests_waiting"]) <= PLACES
    server.wait_idle()
    served = [i for i, status in enumerate(statuses) if status == 200]
    assert [told(answers[i].response) for i in served] == alone(server, [bodies[i] for i in served])
    refused = [answer for answer in answers if answer.response.status_code == 429]
    slowest = max(answer.seconds for answer in refused)
    used = max(answer.processor for answer in refused) - before
    print(f"{len(refused)} refused, the last after {slowest:.2f} s, {used:.2f} s of the processor")
    return used


def test_connections_that_ask_nothing(many_files: None, server: ServerProcess) -> None:
    """X6: idle ones and ones that trickle are closed in time, and hold nobody up meanwhile."""
    with control_stream(server):
        sockets = [socket.create_connection(server.address, timeout=30) for _ in range(CONNECTIONS)]
        for connection in sockets[::2]:
            connection.sendall(b"GET /he")
        began = time.monotonic()
        body = asked(1, 5)
        while len(still_open(sockets)) > 0:
            for connection in sockets[::2]:
                try:
                    connection.send(b"a")
                except OSError:
                    continue
            assert server.answer(COMPLETIONS, {**body, "stream": False, "stream_options": None})
            assert time.monotonic() - began < 30
            time.sleep(0.1)
        assert time.monotonic() - began >= 0.9, "the deadline for a head is a second"
        for connection in sockets:
            connection.close()
    server.wait(lambda: server.metric("farthing_connections") <= 2)


def still_open(sockets: list[socket.socket]) -> list[socket.socket]:
    """Those that the server has not closed."""
    found = []
    for connection in sockets:
        connection.setblocking(False)
        try:
            while connection.recv(65_536):
                pass
        except BlockingIOError:
            found.append(connection)
        except OSError:
            pass
        connection.setblocking(True)
    return found


def test_a_reset_in_the_middle_of_streams(server: ServerProcess) -> None:
    """X1: their blocks are back before the next step, and nobody else notices."""
    bodies = [asked(number, 1500) for number in range(0, 14, 2)]
    with control_stream(server):
        streams = [Streaming(server, COMPLETIONS, body) for body in bodies]
        for stream in streams:
            assert stream.piece()
        before = len(left(server))
        for stream in streams:
            stream.leave()
        server.wait(lambda: len(left(server)) == before + len(bodies))
        # The engine is asked behind the aborts, between two steps: no step more is waited for.
        assert server.invariants()["open_prompts"] <= 1
    assert not any(end.get("finish_reasons") for end in left(server)[before:])


def left(server: ServerProcess) -> list[dict[str, Any]]:
    """What is logged of requests whose clients have left."""
    return [e for e in server.entries("farthing.requests") if e.get("outcome") == "left"]


def test_clients_that_leave_while_they_are_queued(server: ServerProcess) -> None:
    """X2: what runs goes on as if they had never come."""
    body = {**asked(2, 1000), "n": RUNNING}
    (expected,) = alone(server, [body])
    with Crowd(server, [body]) as crowd:
        server.wait(lambda: server.metric("vllm:num_requests_running") == RUNNING)
        queued = [
            send_request(server, COMPLETIONS, json.dumps(asked(100 + number, 9)).encode())
            for number in range(20)
        ]
        server.wait(lambda: server.metric("farthing_queue_requests") == 20)
        for connection in queued:
            hang_up(connection)
        server.wait(lambda: server.metric("farthing_queue_requests") == 0)
        assert server.metric("vllm:num_requests_running") == RUNNING
        (response,) = crowd.responses()
    assert told(response) == expected


def test_a_reader_that_stalls(server: ServerProcess) -> None:
    """X4: it is cut off; what was kept for it is bounded, and the others do not wait for it."""
    body = {**asked(0, 1500), "n": 8, "logprobs": 20, "return_token_ids": True}
    with control_stream(server):
        stalled = socket.socket()
        stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stalled.connect(server.address)
        raw = json.dumps(body).encode()
        stalled.sendall(post(COMPLETIONS, raw))
        server.wait(lambda: "stalled reader" in server.log())
        stalled.close()
    server.wait_idle()
