"""Clients of HTTP/1.0: no chunks; the end of a body is its length, or that of the connection."""

from __future__ import annotations

import pytest

from support.http_server import RunningServer, event_bytes
from support.raw_http import RawClient, get, post, wait_until

KEEP = "Connection: keep-alive"
MANY = b"data: x\r\n\r\n" * 900


def old(request: bytes) -> bytes:
    """The same request in HTTP/1.0."""
    return request.replace(b" HTTP/1.1\r\n", b" HTTP/1.0\r\n", 1)


@pytest.mark.parametrize("headers", [(), (KEEP,)])
def test_a_stream_is_plain_bytes_until_the_connection_ends(
    server: RunningServer, headers: tuple[str, ...]
) -> None:
    name = f"old-{len(headers)}"
    with RawClient(server.port) as client, RawClient(server.port) as other:
        client.send(old(get(f"/stream?name={name}", *headers)))
        status, found = client.head()
        assert status == 200
        assert "transfer-encoding" not in found
        assert "content-length" not in found
        assert found["connection"] == "close"
        assert client.socket.recv(5, 2) == b"data:"  # MSG_PEEK: it comes as it is made
        assert other.send(get(f"/end?name={name}")).response().status == 200
        body = client.until_closed()
    count = body.count(b"number")
    assert count
    assert body == b"".join(map(event_bytes, range(count))) + b"data: [DONE]\n\n"


def test_a_client_that_leaves_its_stream_is_noticed(server: RunningServer) -> None:
    before = server.seen.disconnects
    with RawClient(server.port) as client:
        assert client.send(old(get("/stream?name=old-leaves"))).head()[0] == 200
    wait_until(lambda: server.seen.disconnects == before + 1)


def test_what_has_a_length_keeps_the_connection_only_if_asked(server: RunningServer) -> None:
    with RawClient(server.port) as client:
        for _ in range(3):
            response = client.send(old(get("/hello", KEEP))).response()
            assert (response.status, response.body) == (200, b'{"hello":"world"}')
            assert response.headers["connection"] == "keep-alive"
            response = client.send(old(post("/echo", MANY, KEEP))).response()
            assert (response.body, response.headers["connection"]) == (MANY, "keep-alive")
        response = client.send(old(get("/hello"))).response()
        assert response.headers["connection"] == "close"
        assert client.until_closed() == b""


@pytest.mark.parametrize("headers", [(), (KEEP,)])
def test_errors_have_a_length(server: RunningServer, headers: tuple[str, ...]) -> None:
    with RawClient(server.port) as client:
        response = client.send(old(get("/none", *headers))).response()
        assert response.status == 404
        assert response.error["code"] == "route_not_found"
        assert response.headers["connection"] == ("keep-alive" if headers else "close")
        if not headers:
            assert client.until_closed() == b""


def test_what_breaks_off_the_request_closes(server: RunningServer) -> None:
    with RawClient(server.port) as client:
        response = client.send(old(post("/echo", b"{}", KEEP, length=1 << 40))).response()
        assert (response.status, response.headers["connection"]) == (413, "close")
        assert client.until_closed() == b""


@pytest.mark.parametrize("headers", [(), (KEEP,)])
def test_a_head_alone_has_no_body(server: RunningServer, headers: tuple[str, ...]) -> None:
    with RawClient(server.port) as client:
        client.send(old(get("/hello", *headers)).replace(b"GET", b"HEAD", 1))
        status, found = client.head()
        assert status == 405
        assert "transfer-encoding" not in found
        if headers:
            assert found["connection"] == "keep-alive"
            client.send(old(get("/hello", *headers)))
            assert client.response().body == b'{"hello":"world"}'
        else:
            assert found["connection"] == "close"
            assert client.until_closed() == b""


def test_nobody_is_told_to_continue(server: RunningServer) -> None:
    with RawClient(server.port) as client:
        head, _, _ = old(post("/echo", b"{}", "Expect: 100-continue")).rpartition(b"{}")
        client.send(head)
        client.send(b"{}")
        assert client.response().body == b"{}"  # not of an interim response, which has none
        assert client.until_closed() == b""


def test_requests_behind_one_another_are_answered_in_order(server: RunningServer) -> None:
    with RawClient(server.port) as client:
        client.send(old(get("/hello", KEEP)) + old(post("/echo", b"1", KEEP)) + get("/hello"))
        assert [client.response().body for _ in range(3)] == [
            b'{"hello":"world"}',
            b"1",
            b'{"hello":"world"}',
        ]
