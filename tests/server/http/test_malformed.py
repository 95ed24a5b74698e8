"""What is no request, or more than one: 400 and close, beside a stream that must not notice."""

from __future__ import annotations

import pytest

from support.http_server import RunningServer
from support.raw_http import RawClient, chunked, get, post

HEAD = b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
TWICE = b"GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n"

BAD_HEADS = {
    "length and chunks": HEAD + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks and length": HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
    "two lengths": HEAD + b"Content-Length: 2\r\nContent-Length: 4\r\n\r\n{}{}",
    "one length twice": HEAD + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
    "list of lengths": HEAD + b"Content-Length: 2, 2\r\n\r\n{}",
    "signed length": HEAD + b"Content-Length: +2\r\n\r\n{}",
    "negative length": HEAD + b"Content-Length: -2\r\n\r\n{}",
    "hexadecimal length": HEAD + b"Content-Length: 0x2\r\n\r\n{}",
    "no length": HEAD + b"Content-Length: \r\n\r\n{}",
    "length beyond numbers": HEAD + b"Content-Length: 99999999999999999999999\r\n\r\n{}",
    "length with a space": HEAD + b"Content-Length: 2 2\r\n\r\n{}",
    "gzip chunks": HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunks twice": HEAD + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "two encodings": HEAD + b"Transfer-Encoding: chunked\r\n" * 2 + b"\r\n0\r\n\r\n",
    "nearly chunks": HEAD + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "quoted chunks": HEAD + b'Transfer-Encoding: "chunked"\r\n\r\n0\r\n\r\n',
    "chunks with a tab": HEAD + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "identity": HEAD + b"Transfer-Encoding: identity\r\nContent-Length: 2\r\n\r\n{}",
    "only gzip": HEAD + b"Transfer-Encoding: gzip\r\n\r\n0\r\n\r\n",
    "chunks in 1.0": HEAD.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "space before colon": b"GET /hello HTTP/1.1\r\nHost : localhost\r\n\r\n",
    "folded line": b"GET /hello HTTP/1.1\r\nHost: localhost\r\nX: y\r\n z\r\n\r\n",
    "folded first": b"GET /hello HTTP/1.1\r\n X: y\r\nHost: localhost\r\n\r\n",
    "bare LF": b"GET /hello HTTP/1.1\nHost: localhost\n\n",
    "one bare LF": b"GET /hello HTTP/1.1\r\nHost: localhost\nX: y\r\n\r\n",
    "LF at the end": b"GET /hello HTTP/1.1\r\nHost: localhost\r\n\n",
    "bare CR": b"GET /hello HTTP/1.1\r\nHost: localhost\r\nX: a\rb\r\n\r\n",
    "NUL": b"GET /hello HTTP/1.1\r\nHost: localhost\r\nX: a\0b\r\n\r\n",
    "control character": b"GET /hello HTTP/1.1\r\nHost: localhost\r\nX: a\x01b\r\n\r\n",
    "no name": b"GET /hello HTTP/1.1\r\nHost: localhost\r\n: y\r\n\r\n",
    "no colon": b"GET /hello HTTP/1.1\r\nHost: localhost\r\nX\r\n\r\n",
    "name with a control": b"GET /hello HTTP/1.1\r\nHost: localhost\r\nX\x01: y\r\n\r\n",
    "no host": b"GET /hello HTTP/1.1\r\n\r\n",
    "two hosts": b"GET /hello HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
    "HTTP/0.9": b"GET /hello\r\n\r\n",
    "HTTP/1.2": b"GET /hello HTTP/1.2\r\nHost: localhost\r\n\r\n",
    "HTTP/2.0": b"GET /hello HTTP/2.0\r\nHost: localhost\r\n\r\n",
    "HTTP/2 prior knowledge": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "http/1.1": b"GET /hello http/1.1\r\nHost: localhost\r\n\r\n",
    "no version": b"GET /hello HTTP/\r\nHost: localhost\r\n\r\n",
    "small letters": b"get /hello HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "unknown method": b"FOO /hello HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "tabs": b"GET\t/hello\tHTTP/1.1\r\nHost: localhost\r\n\r\n",
    "no target": b"GET  HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "target is no path": b"GET hello HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "bytes in the target": b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "control in the target": b"GET /a\x01b HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "text": b"hello, is this the model?\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)) * 2,
    "zeros": b"\0" * 1000,
    "SSH": b"SSH-2.0-OpenSSH_9.6\r\n",
}

BAD_CHUNKS = {
    "end is not CRLF": b"3\r\nabcXX0\r\n\r\n",
    "longer than it says": b"2\r\nabc\r\n0\r\n\r\n",
    "shorter than it says": b"5\r\nabc\r\n0\r\n\r\n",
    "bare LF after the size": b"3\nabc\r\n0\r\n\r\n",
    "bare LF after the data": b"3\r\nabc\n0\r\n\r\n",
    "bare LF at the end": b"3\r\nabc\r\n0\n\n",
    "no CRLF after the data": b"3\r\nabc0\r\n\r\n",
    "space after the size": b"3 \r\nabc\r\n0\r\n\r\n",
    "space before the size": b" 3\r\nabc\r\n0\r\n\r\n",
    "0x": b"0x3\r\nabc\r\n0\r\n\r\n",
    "negative": b"-3\r\nabc\r\n0\r\n\r\n",
    "no size": b"\r\nabc\r\n0\r\n\r\n",
    "too many digits": b"fffffffffffffffff\r\nabc\r\n0\r\n\r\n",
    "not a number": b"xyz\r\nabc\r\n0\r\n\r\n",
    "LF in an extension": b"3;a\nb\r\nabc\r\n0\r\n\r\n",
    "NUL in an extension": b"3;a\0b\r\nabc\r\n0\r\n\r\n",
    "trailer without colon": b"3\r\nabc\r\n0\r\nX\r\n\r\n",
    "folded trailer": b"3\r\nabc\r\n0\r\nX: y\r\n z\r\n\r\n",
}


def answered_400_and_closed(client: RawClient) -> None:
    response = client.response()
    assert response.status == 400, response
    assert response.error["code"] == "bad_http"
    assert response.error["type"] == "invalid_request_error"
    assert response.headers["connection"] == "close"
    assert len(response.body) < 300
    assert client.until_closed() == b""


@pytest.mark.parametrize("data", BAD_HEADS.values(), ids=BAD_HEADS.keys())
def test_a_bad_head(server: RunningServer, data: bytes) -> None:
    served = server.seen.served
    with RawClient(server.port) as client:
        answered_400_and_closed(client.send(data + TWICE))
    assert server.seen.served == served  # what came behind it was not served


@pytest.mark.parametrize("data", BAD_HEADS.values(), ids=BAD_HEADS.keys())
def test_a_bad_head_after_a_good_request(server: RunningServer, data: bytes) -> None:
    with RawClient(server.port) as client:
        client.send(get("/headers") + data)
        assert client.response().status == 200
        answered_400_and_closed(client)


@pytest.mark.parametrize("path", ["/echo", "/plain"])
@pytest.mark.parametrize("data", BAD_CHUNKS.values(), ids=BAD_CHUNKS.keys())
def test_a_bad_chunk(server: RunningServer, data: bytes, path: str) -> None:
    served = server.seen.served
    with RawClient(server.port) as client:
        answered_400_and_closed(client.send(chunked(path, end=data + TWICE)))
    assert server.seen.served == served


@pytest.mark.parametrize("data", BAD_CHUNKS.values(), ids=BAD_CHUNKS.keys())
def test_a_bad_chunk_of_a_body_that_nobody_reads_ends_the_connection(
    server: RunningServer, data: bytes
) -> None:
    served = server.seen.served
    with RawClient(server.port) as client:
        client.send(chunked("/unread", end=b"1\r\nx\r\n"))
        assert client.response().body == b"not read"
        assert client.send(data + TWICE).until_closed() == b""
    assert server.seen.served == served


def test_bytes_one_by_one_are_read_like_all_at_once(server: RunningServer) -> None:
    requests = {
        b"\r\n" + post("/echo", b'{"a": "\r\n\r\n"}'): b'{"a": "\r\n\r\n"}',
        chunked("/echo", b"\r\n\r\n", b"0\r\n\r\n"): b"\r\n\r\n0\r\n\r\n",
        get("/hello"): b'{"hello":"world"}',
    }
    with RawClient(server.port) as client:
        for request, answer in requests.items():
            for at in range(len(request)):
                client.send(request[at : at + 1])
            assert client.response().body == answer


@pytest.mark.parametrize("name", ["two lengths", "bare LF", "folded line", "no host", "no target"])
def test_a_bad_head_in_pieces(server: RunningServer, name: str) -> None:
    data = BAD_HEADS[name]
    with RawClient(server.port) as client:
        try:
            for at in range(len(data)):
                client.send(data[at : at + 1])
        except ConnectionError:
            pass  # it has seen enough
        response = client.response()
        assert (response.status, response.error["code"]) == (400, "bad_http")


def test_the_target_counts_for_the_host(server: RunningServer) -> None:
    """As a proxy would have it: who is asked stands in the target, not in ``Host``."""
    with RawClient(server.port) as client:
        line = b"GET http://localhost:8000/hello HTTP/1.1\r\nHost: evil.example\r\n\r\n"
        assert client.send(line).response().status == 200
        line = b"GET http://evil.example/hello HTTP/1.1\r\nHost: localhost\r\n\r\n"
        assert client.send(line).response().status == 403
        line = b"GET http://[::1]:8000/hello HTTP/1.1\r\nHost: localhost\r\n\r\n"
        assert client.send(line).response().status == 200
        assert client.send(get("/hello")).response().status == 200


@pytest.mark.parametrize(
    ("target", "method", "status"),
    [
        ("/..%2f", "GET", 404),
        ("/%2e%2e/hello", "GET", 404),
        ("/hello/../hello", "GET", 404),
        ("/%00", "GET", 404),
        ("/%ff%fe", "GET", 404),
        ("//evil.example/hello", "GET", 404),
        ("/hello%", "GET", 404),
        ("/hello?" + "x" * 1000, "GET", 200),
        ("/hello#fragment", "GET", 200),
        ("*", "OPTIONS", 404),
        ("/hello", "DELETE", 405),
        ("/hello", "TRACE", 405),
        ("/hello", "OPTIONS", 405),
        ("/hello", "PROPFIND", 405),
        ("localhost:443", "CONNECT", 405),
    ],
)
def test_odd_targets_and_methods_are_just_unknown(
    server: RunningServer, target: str, method: str, status: int
) -> None:
    with RawClient(server.port) as client:
        response = client.send(get(target).replace(b"GET", method.encode(), 1)).response()
        assert response.status == status, response
        if status != 200:
            assert response.error["type"] in ("not_found_error", "invalid_request_error")


@pytest.mark.parametrize("what", ["h2c", "websocket", "TLS/1.0"])
def test_who_would_rather_speak_otherwise_is_answered_in_http(
    server: RunningServer, what: str
) -> None:
    ask = ("Connection: Upgrade, HTTP2-Settings", f"Upgrade: {what}", "HTTP2-Settings: AAMAAABk")
    with RawClient(server.port) as client:
        for _ in range(2):
            assert client.send(get("/hello", *ask)).response().body == b'{"hello":"world"}'
            assert client.send(post("/echo", b'{"a":1}', *ask)).response().body == b'{"a":1}'
            upgrade = "\r\n".join(("", *ask)).encode()
            chunks = chunked("/echo", b"{", b"}").replace(b"\r\nHost", upgrade + b"\r\nHost")
            assert client.send(chunks).response().body == b"{}"
        client.send(post("/echo", b"{}", *ask, length=4)).send(b"[]")
        assert client.response().body == b"{}[]"
