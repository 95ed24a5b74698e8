"""A server process that dies, hangs, or finds no room for files, logs and memory."""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import signal
import socket
from pathlib import Path

import pytest

from support.control_stream import control_stream
from support.crowds import asked
from support.full_pipe import full_pipe
from support.reachable import COMPLETIONS, Streaming
from support.server_process import ServerProcess, serving, with_fault

ASKED = {"prompt": "a", "max_tokens": 3, "ignore_eos": True}


def test_a_server_that_is_killed_takes_its_engine_along(life_model: Path) -> None:
    with ServerProcess(life_model) as server:
        server.until_ready()
        stream = Streaming(server, COMPLETIONS, asked(0, 1900))
        assert stream.piece()
        server.child.kill()
        server.child.wait()
        server.wait(lambda: not server.has_engine(), seconds=2)
        stream.leave()


def test_an_event_loop_that_hangs_shows_where_and_ends(life_model: Path) -> None:
    watch = ("--watchdog-timeout", "1")
    with ServerProcess(life_model, *watch, command=with_fault("block")) as server:
        server.until_ready()
        server.signal(signal.SIGUSR1)
        assert server.child.wait(30) == 1
        server.wait(lambda: not server.has_engine(), seconds=5)
        assert "Timeout (0:00:03)!" in server.log()
        assert "in block" in server.log()


@pytest.mark.slow
def test_an_event_loop_that_hangs_ends_though_nobody_reads_where(life_model: Path) -> None:
    """Its stacks cannot be written."""
    watch = ("--watchdog-timeout", "1")
    with (
        full_pipe() as full,
        ServerProcess(life_model, *watch, command=with_fault("block"), stderr=full) as server,
    ):
        server.until_ready()
        server.signal(signal.SIGUSR1)
        assert server.child.wait(30) == -signal.SIGALRM
        server.wait(lambda: not server.has_engine(), seconds=5)


def refusals_of(connections: list[socket.socket]) -> list[bytes]:
    """What those were told that have been refused since this was last asked."""
    found = []
    for connection in connections:
        connection.setblocking(False)
        with contextlib.suppress(BlockingIOError, ConnectionError):
            found.append(connection.recv(4096))
    return [raw for raw in found if raw.startswith(b"HTTP/1.1 503")]


def test_few_files(life_model: Path) -> None:
    """X28: it has fewer connections then, refuses the others in words, and recovers."""

    def few() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

    with serving(life_model, preexec=few) as server, control_stream(server):
        held = [socket.create_connection(server.address, timeout=10) for _ in range(100)]
        refused = server.wait(lambda: refusals_of(held))
        assert all(b"retry-after:" in raw for raw in refused)
        for connection in held:
            connection.close()
        server.wait(lambda: server.status("/health") == 200)
        assert server.answer(COMPLETIONS, ASKED)["usage"]["completion_tokens"] == 3
        assert "Traceback" not in server.log()


def test_nobody_reads_what_it_says(life_model: Path) -> None:
    """X28: stdout and stderr are pipes whose readers have left."""
    reader, writer = os.pipe()
    os.close(reader)
    with serving(life_model, stdout=writer, stderr=writer) as server:
        os.close(writer)
        with control_stream(server):
            for _ in range(20):
                assert server.answer(COMPLETIONS, ASKED)["usage"]["completion_tokens"] == 3
        server.wait(lambda: server.metric("farthing_log_records_dropped_total") > 20)
        server.wait_idle()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_the_disk_of_its_log_is_full(life_model: Path) -> None:
    """X28."""
    with Path("/dev/full").open("wb") as full, serving(life_model, stderr=full) as server:
        with control_stream(server):
            for _ in range(20):
                assert server.answer(COMPLETIONS, ASKED)["usage"]["completion_tokens"] == 3
        server.wait(lambda: server.metric("farthing_log_records_dropped_total") > 20)


def test_a_reader_of_its_log_that_stalls(life_model: Path) -> None:
    """X28: a pipe that nobody empties holds nobody up."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    with serving(life_model, stderr=writer) as server:
        os.close(writer)
        with control_stream(server):
            for _ in range(100):  # several times what the pipe holds
                assert server.status("/version") == 200
    os.close(reader)
