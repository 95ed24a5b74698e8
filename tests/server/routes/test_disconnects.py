"""A client that leaves gives back what it had, in whatever state its request is."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from farthing.server.service import ENCODING_THREADS
from support.control_stream import control_stream
from support.engine_process import faulty
from support.reachable import CHAT, COMPLETIONS, Streaming, hang_up, send_request
from support.served import Served, serve

SLOW = faulty("slow", 10)  # so that nothing has ended before its client leaves
TOKENS = 20  # of the streams beside
LONG = {"prompt": "One penny", "max_tokens": 240, "ignore_eos": True, "temperature": 0}


@pytest.fixture(scope="module")
def slow_server(served_model: Path) -> Iterator[Served]:
    with serve(served_model, command=SLOW) as server:
        yield server


@pytest.fixture
def slow(slow_server: Served) -> Iterator[Served]:
    """A server whose steps take their time, idle before and after the test."""
    slow_server.records.all.clear()
    yield slow_server
    slow_server.wait_idle()


def left(served: Served, count: int) -> None:
    """Waits until so many requests have ended because their clients left."""
    served.wait(lambda: sum(r.outcome == "left" for r in served.records.all) == count)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("fields", [{}, {"n": 3}, {"prompt": ["One", "Two", "Three"]}])
def test_while_its_answer_is_made(slow: Served, stream: bool, fields: dict[str, Any]) -> None:
    numbers = slow.service.model().admission.numbers
    with control_stream(slow, TOKENS):
        prompts = len(fields["prompt"]) if "prompt" in fields else 1
        connection = send_request(
            slow, COMPLETIONS, json.dumps({**LONG, "stream": stream, **fields}).encode()
        )
        slow.wait(lambda: slow.service.engine.in_flight == 1 + prompts)
        slow.wait(lambda: numbers.waiting_requests == 0)
        hang_up(connection)
        slow.wait(lambda: slow.service.engine.in_flight <= 1)
        left(slow, 1)


def test_in_the_middle_of_a_stream(slow: Served) -> None:
    with control_stream(slow, TOKENS):
        streams = [Streaming(slow, CHAT, chat_body(i)) for i in range(3)]
        for stream in streams:
            assert stream.piece()
            stream.leave()
        slow.wait(lambda: slow.service.engine.in_flight <= 1)
        left(slow, 3)
    assert all(record.status == 200 for record in slow.records.all)


def chat_body(seed: int) -> dict[str, Any]:
    return {
        "messages": [{"role": "user", "content": "Speak"}],
        "max_tokens": 200,
        "ignore_eos": True,
        "seed": seed,
    }


@pytest.fixture(scope="module")
def narrow(served_model: Path) -> Iterator[Served]:
    """A server that runs one sequence at a time."""
    with serve(served_model, command=SLOW, engine={"max_num_seqs": 1}) as server:
        yield server


def test_while_it_is_queued(narrow: Served) -> None:
    """X2: what runs is untouched, and the places in the queue are free."""
    admission = narrow.service.model().admission
    with control_stream(narrow, 60):
        queued = [
            send_request(narrow, COMPLETIONS, json.dumps({**LONG, "stream": s}).encode())
            for s in (False, True, False)
        ]
        narrow.wait(lambda: admission.numbers.waiting_requests == 3)
        for connection in queued:
            hang_up(connection)
        narrow.wait(lambda: admission.numbers.waiting_requests == 0)
        left(narrow, 3)
    assert all(r.completion_tokens == 0 for r in narrow.records.all if r.outcome == "left")
    narrow.wait_idle()


@pytest.mark.parametrize("stream", [False, True])
def test_who_sends_no_more_has_left(slow: Served, stream: bool) -> None:
    """TCP says no more of who closes; what he is sent could come back when all is done."""
    with control_stream(slow, TOKENS):
        connection = send_request(
            slow, COMPLETIONS, json.dumps({**LONG, "stream": stream}).encode()
        )
        slow.wait(lambda: slow.service.engine.in_flight == 2)
        connection.shutdown(socket.SHUT_WR)
        slow.wait(lambda: slow.service.engine.in_flight <= 1)
        left(slow, 1)
        received = b""
        while piece := connection.recv(65_536):  # it is closed for him, too
            received += piece
        assert stream or not received
        assert b"[DONE]" not in received
        connection.close()


def test_before_its_body_has_come(served: Served) -> None:
    with control_stream(served):
        connection = send_request(served, CHAT, b'{"messages": ', length=1000)
        served.wait(lambda: served.service.observation.load == 2)
        hang_up(connection)
        left(served, 1)


def test_while_its_prompt_is_encoded(served: Served) -> None:
    service = served.service
    with control_stream(served):
        go_on = threading.Event()
        try:
            for _ in range(ENCODING_THREADS):
                service.threads.submit(go_on.wait)
            connection = send_request(served, CHAT, json.dumps(chat_body(1)).encode())
            served.wait(lambda: service.observation.load == 2)
            hang_up(connection)
            left(served, 1)
        finally:
            go_on.set()
    assert all(record.completion_tokens for record in served.records.all if record.status == 200)
