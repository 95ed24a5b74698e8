"""Requests that are too long or too slow, each beside a stream that must not notice."""

from __future__ import annotations

import time

import pytest

from support.http_server import QUICK, RunningServer
from support.raw_http import RawClient, RawResponse, chunked, get, post, wait_until

LIMIT = QUICK.max_body_bytes


def refused(client: RawClient, status: int, code: str) -> RawResponse:
    """The response, which must be this refusal and the last."""
    response = client.response()
    assert response.status == status, response
    assert response.error["code"] == code
    assert response.headers["connection"] == "close"
    assert client.until_closed() == b""
    return response


def test_a_body_up_to_the_limit_is_read(server: RunningServer) -> None:
    body = bytes(range(256)) * (LIMIT // 256)
    body += b"x" * (LIMIT - len(body))
    with RawClient(server.port) as client:
        assert client.send(post("/echo", body)).response().body == body
        pieces = [body[at : at + 1000] for at in range(0, LIMIT, 1000)]
        assert client.send(chunked("/echo", *pieces)).response().body == body


@pytest.mark.parametrize("length", [LIMIT + 1, 10**9, 2**63, 2**64 - 1])
@pytest.mark.parametrize("path", ["/echo", "/plain", "/unread", "/nowhere"])
def test_a_longer_one_is_refused_by_its_length(
    server: RunningServer, length: int, path: str
) -> None:
    with RawClient(server.port) as client:
        client.send(post(path, b"", length=length))  # not a byte of the body
        refused(client, 413, "request_too_large")


def test_whoever_asks_first_is_told_before_sending(server: RunningServer) -> None:
    with RawClient(server.port) as client:
        client.send(post("/echo", b"", "Expect: 100-continue", length=LIMIT + 1))
        refused(client, 413, "request_too_large")
    with RawClient(server.port) as client:
        client.send(post("/echo", b"", "Expect: 100-continue", length=2))
        assert client.head() == (100, {})
        assert client.send(b"{}").response().body == b"{}"


@pytest.mark.parametrize("size", [LIMIT + 1, 3 * LIMIT, 3_000_000])
def test_a_client_that_sends_it_all_the_same_still_reads_why(
    server: RunningServer, size: int
) -> None:
    with RawClient(server.port) as client:
        client.send(post("/echo", b"x" * size))
        refused(client, 413, "request_too_large")


@pytest.mark.parametrize("path", ["/echo", "/plain"])
def test_chunks_are_refused_where_they_cross_the_limit(server: RunningServer, path: str) -> None:
    with RawClient(server.port) as client:
        client.send(chunked(path, b"x" * LIMIT, end=b""))
        wait_until(lambda: server.protocol.all_connections.body_bytes == LIMIT)  # nothing is wrong
        client.send(b"1\r\nx\r\n")
        refused(client, 413, "request_too_large")
    with RawClient(server.port) as client:
        client.send(chunked(path, *[b"x" * 50_000] * 100))
        refused(client, 413, "request_too_large")


def test_an_endless_chunk_is_refused(server: RunningServer) -> None:
    with RawClient(server.port) as client:
        client.send(chunked("/echo", end=b"7fffffffffffffff\r\n") + b"x" * (LIMIT + 1))
        refused(client, 413, "request_too_large")


@pytest.mark.parametrize(
    "around",
    [
        b"1\r\nx\r\n" * 60_000,
        b"1;" + b"e" * 1_000_000 + b"\r\nx\r\n0\r\n\r\n",
        b"".join(b"1;ext=%d\r\nx\r\n" % i for i in range(60_000)),
        b"1\r\nx\r\n0\r\n" + b"trailer: value\r\n" * 30_000 + b"\r\n",
        b"0" * 1_000_000 + b"1\r\nx\r\n0\r\n\r\n",
    ],
    ids=["single bytes", "extension", "extensions", "trailers", "zeros"],
)
def test_what_is_around_chunks_has_a_limit_too(server: RunningServer, around: bytes) -> None:
    with RawClient(server.port) as client:
        client.send(chunked("/echo", end=around))
        refused(client, 400, "bad_http")


def test_small_chunks_are_read(server: RunningServer) -> None:
    body = b"some tokens " * 1000
    with RawClient(server.port) as client:
        pieces = [body[at : at + 3] for at in range(0, len(body), 3)]
        assert client.send(chunked("/echo", *pieces)).response().body == body


def test_trailers_are_nobodys(server: RunningServer) -> None:
    with RawClient(server.port) as client:
        client.send(chunked("/echo", b"{}", end=b"0\r\nContent-Type: text/plain\r\nX: y\r\n\r\n"))
        assert client.response().body == b"{}"
        assert b"text/plain" not in client.send(get("/headers")).response().body


@pytest.mark.parametrize(
    "request_bytes",
    [
        get("/hello", "X: " + "x" * 1_048_576),
        get("/hello", "X: " + "x" * QUICK.max_header_bytes),
        get("/hello", *["X: " + "x" * 1000] * 9),
        get("/hello", *[f"X{i}: y" for i in range(1000)]),
        get("/hello", *[f"X{i}: y" for i in range(QUICK.max_header_count)]),
        get("/hello", "x" * 20_000 + ": y"),
        get("/hello", "Authorization: Bearer " + "k" * 1_048_576),
        b"\r\n" * 10_000 + get("/hello"),
    ],
    ids=["1 MiB", "limit", "many long", "1000", "count", "name", "key", "empty lines"],
)
def test_a_head_has_a_limit(server: RunningServer, request_bytes: bytes) -> None:
    with RawClient(server.port) as client:
        client.send(request_bytes)
        refused(client, 431, "headers_too_large")


def test_a_head_up_to_the_limit_is_read(server: RunningServer) -> None:
    names = [f"X{i}: y" for i in range(QUICK.max_header_count - 1)]
    bare = len(get("/hello", "X: "))
    with RawClient(server.port) as client:
        for request in (
            get("/hello", *names),
            get("/hello", "X: " + "x" * (QUICK.max_header_bytes - bare)),
            b"\r\n\r\n" + get("/hello"),
        ):
            assert client.send(request).response().status == 200


def test_a_url_has_a_limit(server: RunningServer) -> None:
    for size in (QUICK.max_header_bytes, 1_000_000):
        with RawClient(server.port) as client:
            client.send(get("/" + "x" * size))
            refused(client, 414, "url_too_long")


def trickle(client: RawClient, data: bytes) -> None:
    """Sends a byte at a time until the server has had enough."""
    for at in range(len(data)):
        try:
            client.send(data[at : at + 1])
        except (BrokenPipeError, ConnectionResetError):
            return
        time.sleep(0.02)
        client.socket.setblocking(False)
        try:
            answered = client.socket.recv(1, 2)  # MSG_PEEK
        except BlockingIOError:
            answered = b""
        client.socket.settimeout(20)
        if answered:
            return
    raise AssertionError("it would wait for ever")


@pytest.mark.parametrize("request_bytes", [get("/hello", "X: " + "x" * 300), b"\r\n" * 300])
def test_a_slow_head_is_refused(server: RunningServer, request_bytes: bytes) -> None:
    with RawClient(server.port) as client:
        began = time.monotonic()
        trickle(client, request_bytes)
        assert time.monotonic() - began >= QUICK.header_timeout
        refused(client, 408, "request_timeout")


def test_a_slow_head_is_refused_on_a_connection_that_was_used(server: RunningServer) -> None:
    with RawClient(server.port) as client:
        assert client.send(get("/hello")).response().status == 200
        trickle(client, get("/hello", "X: " + "x" * 300))
        refused(client, 408, "request_timeout")


@pytest.mark.parametrize("path", ["/echo", "/plain"])
@pytest.mark.parametrize("kind", ["length", "chunks"])
def test_a_slow_body_is_refused(server: RunningServer, path: str, kind: str) -> None:
    head = post(path, b"", length=500) if kind == "length" else chunked(path, end=b"1f4\r\n")
    with RawClient(server.port) as client:
        began = time.monotonic()
        client.send(head)
        trickle(client, b"x" * 500)
        assert time.monotonic() - began >= QUICK.body_timeout
        refused(client, 408, "request_timeout")


def test_a_body_that_does_not_come_is_refused(server: RunningServer) -> None:
    with RawClient(server.port) as client:
        client.send(post("/echo", b"{", length=2))
        refused(client, 408, "request_timeout")


def test_a_body_that_nobody_wants_does_not_keep_a_connection(server: RunningServer) -> None:
    with RawClient(server.port) as client:
        client.send(post("/unread", b"{", length=2))
        assert client.response().body == b"not read"
        assert client.until_closed() == b""
    with RawClient(server.port) as client:  # and if it does come, the connection goes on
        client.send(post("/unread", b"{", length=2))
        assert client.response().body == b"not read"
        assert client.send(b"}" + get("/hello")).response().status == 200


def test_whoever_says_nothing_is_closed_without_a_word(server: RunningServer) -> None:
    began = time.monotonic()
    with RawClient(server.port) as client:
        assert client.until_closed() == b""
    assert time.monotonic() - began >= QUICK.header_timeout


def test_a_connection_is_kept_between_requests_but_not_for_ever(server: RunningServer) -> None:
    with RawClient(server.port) as client:
        for _ in range(3):
            assert client.send(get("/hello")).response().status == 200
            time.sleep(QUICK.keep_alive_timeout / 4)
        began = time.monotonic()
        assert client.until_closed() == b""
        assert time.monotonic() - began >= QUICK.keep_alive_timeout / 2


def test_bodies_that_have_come_count_until_they_are_answered() -> None:
    from dataclasses import replace

    with RunningServer(replace(QUICK, max_bodies_bytes=150_000)) as server:
        held = server.protocol.all_connections
        with RawClient(server.port) as first, RawClient(server.port) as second:
            first.send(post("/ignored", b"x" * 60_000))
            wait_until(lambda: held.body_bytes == 60_000)
            second.send(post("/echo", b"x" * 95_000))
            response = second.response()
            assert (response.status, response.error["code"]) == (503, "too_many_bytes")
            assert first.response().body == b"late"
            wait_until(lambda: held.body_bytes == 0)
            assert first.send(post("/echo", b"x" * 95_000)).response().status == 200
        with RawClient(server.port) as client:
            client.send(post("/ignored", b"x" * 60_000))
            wait_until(lambda: held.body_bytes == 60_000)
        wait_until(lambda: server.open == 0)
        assert held.body_bytes == 0


def test_bodies_that_come_at_once_share_a_limit() -> None:
    from dataclasses import replace

    with RunningServer(replace(QUICK, max_bodies_bytes=150_000)) as server:
        held = server.protocol.all_connections
        with RawClient(server.port) as first, RawClient(server.port) as second:
            first.send(post("/echo", b"x" * 90_000, length=90_001))
            wait_until(lambda: held.body_bytes == 90_000)
            second.send(post("/echo", b"x" * 90_000))
            response = second.response()
            assert (response.status, response.error["code"]) == (503, "too_many_bytes")
            assert response.headers["retry-after"] == "1"
            assert first.send(b"x").response().body == b"x" * 90_001
        wait_until(lambda: server.open == 0)
        assert held.body_bytes == 0
