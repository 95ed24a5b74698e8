"""Requests behind requests on one connection: in order, one at a time, and no more than fit."""

from __future__ import annotations

import random
import socket
import time

from support.http_server import QUICK, RunningServer
from support.raw_http import RawClient, chunked, get, post, wait_until


def test_requests_are_answered_in_order(server: RunningServer) -> None:
    bodies = [b'{"n": %d}' % n for n in range(50)]
    with RawClient(server.port) as client:
        client.send(b"".join(post("/echo", body) for body in bodies))
        assert [client.response().body for _ in bodies] == bodies
        client.send(get("/hello") * 50)
        assert {client.response().status for _ in bodies} == {200}


def test_however_the_bytes_are_cut(server: RunningServer) -> None:
    random_cuts = random.Random(5)
    bodies = [
        bytes(random_cuts.choices(b"\r\n{}0", k=random_cuts.randrange(40))) for _ in range(60)
    ]
    stream = b"".join(
        post("/echo", body) + random_cuts.choice([b"", b"\r\n", b"\r\n\r\n"]) for body in bodies
    )
    with RawClient(server.port) as client:
        at = 0
        while at < len(stream):
            size = random_cuts.choice([1, 2, 3, 7, 50, 300, 2000])
            client.send(stream[at : at + size])
            at += size
        assert [client.response().body for _ in bodies] == bodies


def test_one_is_answered_while_the_next_waits(server: RunningServer) -> None:
    with RawClient(server.port) as client:
        began = time.monotonic()
        client.send(post("/ignored", b"{}") + get("/hello"))
        served = server.seen.served
        assert client.response().body == b"late"
        assert time.monotonic() - began >= 0.25
        assert client.response().body == b'{"hello":"world"}'
        assert server.seen.served == served + 1


def test_more_than_fits_ends_the_connection_after_the_answer(server: RunningServer) -> None:
    with RawClient(server.port) as client:
        client.send(post("/ignored", b"{}") + get("/hello") * 1000)
        assert client.response().body == b"late"
        assert client.until_closed() == b""


def test_nothing_is_served_behind_the_last_request(server: RunningServer) -> None:
    served = server.seen.served
    with RawClient(server.port) as client:
        client.send(get("/headers", "Connection: close") + get("/hello"))
        assert client.response().headers["connection"] == "close"
        assert client.until_closed() == b""
    with RawClient(server.port) as client:
        client.send(get("/headers").replace(b"1.1", b"1.0") + get("/hello"))
        assert client.response().headers["connection"] == "close"
        assert client.until_closed() == b""
    assert server.seen.served == served


def test_behind_chunks_in_the_same_bytes_it_is_asked_again(server: RunningServer) -> None:
    """Where chunks end is known to the parser alone: the answer says that it was the last."""
    with RawClient(server.port) as client:
        client.send(chunked("/echo", b"{}") + get("/hello"))
        response = client.response()
        assert (response.body, response.headers["connection"]) == (b"{}", "close")
        assert client.until_closed() == b""


def test_what_needs_no_waiting_is_answered_after_the_last_byte(server: RunningServer) -> None:
    """All of it, in order, however much was answered when the client ended its side."""
    bodies = [b'{"n": %d}' % n for n in range(20)]
    for last in (b"", b"GET /he", post("/echo", b"{", length=9)):
        with RawClient(server.port) as client:
            client.send(post("/ignored", b"{}") + get("/hello"))
            client.send(b"".join(post("/echo", body) for body in bodies) + last)
            client.socket.shutdown(socket.SHUT_WR)
            assert client.response().body == b"late"
            assert client.response().body == b'{"hello":"world"}'
            assert [client.response().body for _ in bodies] == bodies
            assert client.until_closed() == b""
    wait_until(lambda: server.open == 1)  # the stream beside


def test_a_stream_behind_the_last_byte_is_nobodys(server: RunningServer) -> None:
    before = server.seen.disconnects
    with RawClient(server.port) as client:
        client.send(post("/ignored", b"{}") + get("/stream?name=behind") + get("/hello"))
        client.socket.shutdown(socket.SHUT_WR)
        assert client.response().body == b"late"
        assert b"hello" not in client.until_closed()
    wait_until(lambda: server.open == 1)  # the stream beside
    assert server.seen.disconnects <= before + 1


def test_a_client_that_leaves_is_noticed_although_requests_wait(server: RunningServer) -> None:
    before = server.seen.disconnects
    with RawClient(server.port) as client:
        client.send(get("/stream?name=left") + get("/hello") * 3)
        assert client.head()[0] == 200
        served = server.seen.served
    wait_until(lambda: server.seen.disconnects == before + 1)
    assert server.seen.served == served
    wait_until(lambda: server.open == 1)  # the stream beside
    assert QUICK.max_header_bytes > len(get("/hello")) * 3
