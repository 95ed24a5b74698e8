"""Many connections: idle ones, trickling ones, more than there is room for."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace

import pytest

from support.http_server import QUICK, RunningServer, control_stream
from support.raw_http import PATIENCE, RawClient, get, post, wait_until


@pytest.fixture(autouse=True)
def _room() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 4096:
        pytest.fail("the tests of a thousand connections need 4096 descriptors (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(
    "first",
    [b"", b"GET /hello HTTP/1.1\r\nHost: loc", post("/echo", b"{", length=100), get("/hello")],
    ids=["silent", "in the head", "in the body", "idle"],
)
def test_a_thousand_sockets_that_want_nothing_take_nothing_from_others(first: bytes) -> None:
    limits = replace(QUICK, header_timeout=1.5, body_timeout=1.5, keep_alive_timeout=1.5)
    with RunningServer(limits) as server, ExitStack() as stack, control_stream(server):
        sockets = []
        for _ in range(1000):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            one.settimeout(PATIENCE)
            if first:
                one.sendall(first)
            sockets.append(one)
        with RawClient(server.port) as client:
            assert client.send(get("/hello")).response().status == 200
        wait_until(lambda: server.open == 1)  # the stream beside
        for one in sockets:
            while one.recv(65_536):
                pass  # what it says to them before it closes


def test_a_thousand_trickling_sockets_are_closed_in_time() -> None:
    limits = replace(QUICK, header_timeout=1.5)
    with RunningServer(limits) as server, ExitStack() as stack, control_stream(server):
        sockets = [
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            for _ in range(1000)
        ]
        head = get("/hello", "X: " + "x" * 1000)
        began = time.monotonic()
        sent = 0
        while server.open > 1 and time.monotonic() - began < PATIENCE:
            for one in sockets:
                with suppress(ConnectionError):
                    one.send(head[sent : sent + 1])
            sent += 1
            if sent == 2:
                with RawClient(server.port) as client:
                    assert client.send(get("/hello")).response().status == 200
        wait_until(lambda: server.open == 1)
        assert server.refused("slow head") == 1000


def test_beyond_the_limit_connections_are_told_so_and_room_is_found_again() -> None:
    limits = replace(QUICK, max_connections=10, header_timeout=PATIENCE, linger_timeout=PATIENCE)
    with RunningServer(limits) as server, control_stream(server), ExitStack() as stack:
        holders = [stack.enter_context(RawClient(server.port)) for _ in range(9)]
        wait_until(lambda: server.open == 10)
        spare = server.protocol.all_connections.spare
        for _ in range(3):  # whoever is refused and leaves makes room for the next to be
            with ExitStack() as refused:
                for _ in range(spare):
                    client = refused.enter_context(RawClient(server.port))
                    response = client.send(get("/hello")).response()
                    assert response.status == 503
                    assert response.error["code"] == "too_many_connections"
                    assert response.headers["retry-after"] == "1"
                    assert response.headers["connection"] == "close"
                wait_until(lambda: server.open == 10 + spare)
                for _ in range(20):
                    assert refused.enter_context(RawClient(server.port)).is_cut()
            wait_until(lambda: server.open == 10)
        holders[0].socket.close()
        wait_until(lambda: server.open == 9)
        with RawClient(server.port) as client:
            assert client.send(get("/hello")).response().status == 200
        with RawClient(server.port) as client:
            assert client.send(post("/echo", b"{}")).response().body == b"{}"
        holders.append(stack.enter_context(RawClient(server.port)))


class SmallServer:
    """A server process that may have 64 files open."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.small_http_server", "64"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.port, self.limit = self._numbers()

    def _numbers(self) -> tuple[int, int]:
        assert self._process.stdout is not None
        first, second = map(int, self._process.stdout.readline().split())
        return first, second

    def descriptors_and_connections(self) -> tuple[int, int]:
        assert self._process.stdin is not None
        print(file=self._process.stdin, flush=True)
        return self._numbers()

    def __enter__(self) -> SmallServer:
        return self

    def __exit__(self, *_: object) -> None:
        _, complaints = self._process.communicate("", timeout=PATIENCE)
        assert self._process.returncode == 0
        assert complaints == ""


def test_a_process_with_few_descriptors_never_runs_out_of_them() -> None:
    with SmallServer() as server, control_stream(server):
        assert 20 < server.limit < 50  # the soft limit, half of the hard one, was raised
        for _ in range(3):
            with ExitStack() as stack:
                sockets = [stack.enter_context(socket.socket()) for _ in range(500)]
                for one in sockets:  # all at once
                    one.setblocking(False)
                    one.connect_ex(("127.0.0.1", server.port))
                answers = Counter(first_line(one) for one in sockets)
                descriptors, _ = server.descriptors_and_connections()
                assert descriptors <= 64
            assert answers.keys() <= {"HTTP/1.1 200 OK", "HTTP/1.1 503 Service Unavailable", ""}
            assert answers["HTTP/1.1 200 OK"] >= 1
            assert answers["HTTP/1.1 503 Service Unavailable"] >= 1
            wait_until(lambda: server.descriptors_and_connections()[1] == 1)
            with RawClient(server.port) as client:
                assert client.send(get("/hello")).response().status == 200


def first_line(one: socket.socket) -> str:
    """What the server answers; nothing if it has closed without a word."""
    one.settimeout(PATIENCE)
    try:
        one.sendall(get("/hello"))
        return one.recv(4096).decode().partition("\r\n")[0]
    except ConnectionError:
        return ""


def test_without_room_for_connections_it_does_not_begin() -> None:
    code = (
        "import resource\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))\n"
        "from farthing.errors import FarthingError\n"
        "from farthing.server.http.descriptors import most_connections\n"
        "try: most_connections()\n"
        "except FarthingError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == (
        "the limit of 20 open files leaves none for connections; raise it (ulimit -n)\n"
    )


def test_nobody_is_looked_after_when_nobody_is_there() -> None:
    with RunningServer() as server:
        with RawClient(server.port) as client:
            assert client.send(get("/hello")).response().status == 200
        timer = server.protocol.all_connections
        wait_until(lambda: server.open == 0)
        wait_until(lambda: timer._timer is None)
        with RawClient(server.port) as client:
            assert client.send(get("/hello")).response().status == 200
            assert client.until_closed() == b""
