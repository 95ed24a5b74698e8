"""Clients that leave, that stop reading, and a server that stops: who is told what."""

from __future__ import annotations

import socket
import struct
import threading
import time
from dataclasses import replace

import pytest

from support.http_server import QUICK, RunningServer
from support.raw_http import RawClient, get, post, wait_until


def reset(client: RawClient) -> None:
    """Leaves without a goodbye."""
    linger = struct.pack("ii", 1, 0)
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    client.socket.close()


@pytest.mark.parametrize("how", ["close", "reset", "half"])
def test_a_client_that_leaves_ends_its_stream_and_no_other(server: RunningServer, how: str) -> None:
    before = server.seen.disconnects
    client = RawClient(server.port)
    client.send(get("/stream?name=leaves"))
    assert client.head()[0] == 200
    if how == "reset":
        reset(client)
    elif how == "half":
        client.socket.shutdown(socket.SHUT_WR)
    else:
        client.socket.close()
    wait_until(lambda: server.seen.disconnects == before + 1)
    wait_until(lambda: server.open == 1)  # the stream beside
    client.socket.close()


@pytest.mark.parametrize(
    "sent", [b"", b"GET /he", get("/hello")[:-1], post("/echo", b"{", length=9)]
)
def test_a_client_that_leaves_before_it_has_asked(server: RunningServer, sent: bytes) -> None:
    for leave in (reset, lambda client: client.socket.close()):
        client = RawClient(server.port)
        if sent:
            client.send(sent)
        wait_until(lambda: server.open == 2)
        leave(client)
        wait_until(lambda: server.open == 1)
    assert server.protocol.all_connections.body_bytes == 0


def test_a_reader_that_stalls_is_cut_off(server: RunningServer) -> None:
    before, cut = server.seen.disconnects, server.refused("stalled reader")
    with RawClient(server.port) as client:
        began = time.monotonic()
        client.send(get("/flood"))
        wait_until(lambda: server.seen.disconnects == before + 1)
        assert time.monotonic() - began >= QUICK.write_timeout
        assert server.refused("stalled reader") == cut + 1
        wait_until(lambda: server.open == 1)
        assert client.is_cut()


def test_a_reader_that_is_slow_is_not_cut_off() -> None:
    with RunningServer(replace(QUICK, write_timeout=1.0)) as server:
        with RawClient(server.port) as client:
            client.send(get("/flood"))
            assert client.head()[0] == 200
            chunks = client.chunks()
            began = time.monotonic()
            while time.monotonic() - began < 1.5:
                for _ in range(40):
                    assert next(chunks) == b"x" * 65_536
                time.sleep(0.05)
        wait_until(lambda: server.open == 0)
        assert server.refused("stalled reader") == 0


def test_a_reader_that_stalls_does_not_fill_memory() -> None:
    with RunningServer(replace(QUICK, write_timeout=30)) as server:
        with RawClient(server.port) as client:
            client.send(get("/flood"))
            connection = None

            def paused() -> bool:
                nonlocal connection
                for connection in list(server.protocol.all_connections.open):
                    return bool(connection.flow.write_paused)  # type: ignore[attr-defined]
                return False

            wait_until(paused)
            size = connection.transport.get_write_buffer_size()  # type: ignore[attr-defined]
            time.sleep(0.2)
            assert connection.transport.get_write_buffer_size() == size  # type: ignore[attr-defined]
            assert size <= 2 * 65_536 + 100
        wait_until(lambda: server.open == 0)


@pytest.mark.parametrize("last", ["keep-alive", "close"])
def test_what_was_answered_in_full_does_not_wait_for_ever_to_be_read(
    server: RunningServer, last: str
) -> None:
    cut = server.refused("stalled reader")
    with RawClient(server.port) as client:
        client.send(get("/large", f"Connection: {last}"))
        wait_until(lambda: server.refused("stalled reader") == cut + 1)
        wait_until(lambda: server.open == 1)
        assert client.is_cut()


def test_what_was_answered_in_full_is_sent_in_full_before_closing(server: RunningServer) -> None:
    with RawClient(server.port) as client:
        client.send(get("/large", "Connection: close"))
        assert len(client.response().body) == 30_000_000
        assert client.until_closed() == b""
        client.socket.close()
    with RawClient(server.port) as client:
        client.send(get("/large") + get("/hello") * 1000)  # the last answer: too much waits
        assert len(client.response().body) == 30_000_000
        assert client.until_closed() == b""


def test_a_server_that_stops_lets_streams_end_and_nothing_begin() -> None:
    with RunningServer() as server:
        stream = RawClient(server.port).send(get("/stream?name=last"))
        assert stream.head()[0] == 200
        ender = RawClient(server.port)
        assert ender.send(get("/hello")).response().status == 200
        idle = RawClient(server.port)
        begun = RawClient(server.port).send(b"GET /hel")
        body = RawClient(server.port).send(post("/echo", b"{", length=2))
        ending = RawClient(server.port).send(post("/ignored", b"{}"))
        wait_until(lambda: server.open == 6)
        ended = threading.Timer(0.3, lambda: body.send(b"}"))
        ended.start()
        server.ask_to_stop()
        assert idle.until_closed() == b""
        assert ender.until_closed() == b""
        assert begun.is_cut()
        response = ending.response()
        assert (response.body, response.headers["connection"]) == (b"late", "close")
        response = body.response()
        assert (response.body, response.headers["connection"]) == (b"{}", "close")
        assert next(stream.chunks())
        wait_until(lambda: server.open == 1)
        for client in (stream, ender, idle, begun, body, ending):
            client.socket.close()
        ended.join()


def send_last(client: RawClient, request: bytes) -> None:
    """Sends what ends with the end of all that is sent, in one packet if it fits."""
    cork = getattr(socket, "TCP_CORK", None)
    if cork is not None:
        client.socket.setsockopt(socket.IPPROTO_TCP, cork, 1)
    client.send(request)
    client.socket.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize(
    ("asked", "body"),
    [
        (get("/hello"), b'{"hello":"world"}'),
        (get("/large"), b"x" * 30_000_000),
        (post("/echo", b'{"a": 1}'), b'{"a": 1}'),
        (post("/plain", b"x" * 70_000), b"x" * 70_000),
        (post("/ignored", b"{}"), b"late"),
    ],
    ids=["no body", "large", "body", "large body", "late"],
)
def test_who_sends_no_more_is_answered_where_nobody_asks_whether_he_left(
    server: RunningServer, asked: bytes, body: bytes
) -> None:
    with RawClient(server.port) as client:
        send_last(client, asked)
        response = client.response()
        assert (response.status, response.body) == (200, body)
        if body == b"late":
            assert response.headers["connection"] == "close"
        assert client.until_closed() == b""
        wait_until(lambda: server.open == 1)


def test_who_sends_no_more_reads_why_it_is_refused(server: RunningServer) -> None:
    with RawClient(server.port) as client:
        send_last(client, post("/echo", b"{}").replace(b"application/json", b"text/plain"))
        assert client.response().error["code"] == "unsupported_media_type"
        assert client.until_closed() == b""
