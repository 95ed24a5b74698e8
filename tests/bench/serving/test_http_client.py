"""The client over real sockets: times, kept connections, and every way a response can fail."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TypeVar

import pytest

from farthing.bench.serving.exchange import Exchange
from farthing.bench.serving.http_client import HttpClient, ServerAddress
from farthing.errors import InvalidParameterError
from support.scripted_server import (
    LAST_CHUNK,
    STREAM_HEAD,
    Received,
    ScriptedServer,
    Step,
    chunk,
    response,
)

T = TypeVar("T")


def with_client(
    url: str,
    use: Callable[[HttpClient], Awaitable[T]],
    headers: Mapping[str, str] | None = None,
    *,
    verify: bool = True,
) -> T:
    async def work() -> T:
        client = HttpClient(ServerAddress.from_url(url), headers or {}, verify=verify)
        try:
            return await use(client)
        finally:
            await client.close()

    return asyncio.run(work())


def ask(url: str, times: int = 1, timeout: float = 20.0) -> list[Exchange]:
    async def use(client: HttpClient) -> list[Exchange]:
        request = client.request("POST", "/v1/completions", b'{"a": 1}')
        return [await client.send(request, timeout) for _ in range(times)]

    return with_client(url, use)


def test_a_request_is_what_http_demands() -> None:
    with ScriptedServer(lambda request: [response({"ok": True})]) as server:
        exchange = with_client(
            f"{server.url}/deep/",
            lambda client: client.send(
                client.request("POST", "/v1/x", b"{}", {"X-Request-Id": "bench-3"}), 20
            ),
            {"Authorization": "Bearer key"},
        )
    assert exchange.problem is None
    assert exchange.body == b'{"ok": true}'
    (request,) = server.received
    assert (request.method, request.path, request.body) == ("POST", "/deep/v1/x", b"{}")
    assert request.headers["host"] == f"127.0.0.1:{server.port}"
    assert request.headers["authorization"] == "Bearer key"
    assert request.headers["x-request-id"] == "bench-3"
    assert request.headers["content-type"] == "application/json"


def test_connections_are_kept() -> None:
    with ScriptedServer(lambda request: [response({})]) as server:
        exchanges = ask(server.url, times=5)
    assert [each.problem for each in exchanges] == [None] * 5
    assert [(r.connection, r.number) for r in server.received] == [(1, i) for i in range(5)]


def test_a_connection_that_the_server_gave_up_is_replaced() -> None:
    def script(request: Received) -> list[Step]:
        return [response({"connection": request.connection}), "close"]

    async def use(client: HttpClient) -> list[bytes]:
        bodies = []
        for _ in range(3):
            exchange = await client.send(client.request("GET", "/"), 20)
            assert exchange.problem is None
            bodies.append(exchange.body)
        return bodies

    with ScriptedServer(script) as server:
        bodies = with_client(server.url, use)
    assert bodies == [b'{"connection": %d}' % number for number in (1, 2, 3)]


def test_a_kept_connection_that_ends_under_a_request_is_no_answer() -> None:
    def script(request: Received) -> list[Step]:
        return ["reset"] if request.number else [response({"connection": request.connection})]

    with ScriptedServer(script) as server:
        exchanges = ask(server.url, times=3)
    assert [each.problem for each in exchanges] == [None] * 3
    assert exchanges[2].body == b'{"connection": 3}'


def test_a_new_connection_that_ends_under_a_request_is_told() -> None:
    with ScriptedServer(lambda request: ["reset"]) as server:
        (exchange,) = ask(server.url)
    assert exchange.problem is not None
    assert "the connection ended before the response" in exchange.problem
    assert len(server.received) == 1


def test_times_are_those_of_the_bytes() -> None:
    steps: list[Step] = [0.1, STREAM_HEAD]
    for number in range(3):
        steps += [0.05, chunk(b"%d" % number)]
    with ScriptedServer(lambda request: [*steps, 0.05, LAST_CHUNK]) as server:
        before = time.perf_counter()
        (exchange,) = ask(server.url)
    assert exchange.body == b"012"
    assert exchange.headers_at is not None
    assert exchange.ended is not None
    assert before < exchange.started <= exchange.headers_at - 0.1
    times = [exchange.headers_at, *(at for at, _ in exchange.reads), exchange.ended]
    # A read cannot come before it was sent; how late it comes is the system's affair.
    for earlier, sent in zip(times, range(1, 5), strict=False):
        assert times[sent] - exchange.started >= 0.1 + 0.05 * sent
        assert times[sent] >= earlier
    assert len(exchange.reads) == 3


def test_a_body_may_end_with_its_connection() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n"
    with ScriptedServer(lambda request: [head, b"first ", 0.02, b"last", "close"]) as server:
        exchanges = ask(server.url, times=2)
    assert [each.body for each in exchanges] == [b"first last"] * 2
    assert [each.problem for each in exchanges] == [None] * 2
    assert [request.connection for request in server.received] == [1, 2]


def test_what_says_that_more_is_coming_is_no_response() -> None:
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    with ScriptedServer(lambda request: [hints, 0.02, response({"real": 1})]) as server:
        (exchange,) = ask(server.url)
    assert (exchange.status, exchange.body) == (200, b'{"real": 1}')
    assert "link" not in exchange.headers


@pytest.mark.parametrize("end", ["close", "reset"])
def test_a_stream_that_breaks_off_keeps_what_came(end: Step) -> None:
    with ScriptedServer(lambda r: [STREAM_HEAD, chunk(b"data: 1\n\n"), 0.1, end]) as server:
        (exchange,) = ask(server.url)
    assert exchange.status == 200
    assert exchange.body == b"data: 1\n\n"
    assert exchange.problem is not None
    assert exchange.problem.startswith("the connection ended before the response")


def test_what_is_no_http_is_told() -> None:
    with ScriptedServer(lambda request: [b"SSH-2.0-OpenSSH_9.9\r\n"]) as server:
        (exchange,) = ask(server.url)
    assert exchange.problem is not None
    assert exchange.problem.startswith("no response of HTTP")


def test_patience_ends() -> None:
    with ScriptedServer(lambda request: [0.3 * (1 - request.number), response({})]) as server:
        exchanges = ask(server.url, times=1, timeout=0.05)
    assert exchanges[0].problem == "the response was not whole after 0.05 s"


def test_who_is_not_there_is_told() -> None:
    with ScriptedServer(lambda request: []) as server:
        url = server.url
    (exchange,) = ask(url)
    assert exchange.problem is not None
    assert url in exchange.problem


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"error": {"message": "queue is full", "code": "queue_full"}}, "HTTP 429: queue is full"),
        ({"error": "full"}, "HTTP 429: full"),
        ({"detail": [1]}, 'HTTP 429: {"detail": [1]}'),
        (b"<h1>\nno </h1>", "HTTP 429: <h1> no </h1>"),
        (b"", "HTTP 429: no body"),
        (b"[" * 100_000, "HTTP 429: " + "[" * 200),
    ],
)
def test_a_refusal_says_why(body: object, problem: str) -> None:
    with ScriptedServer(lambda request: [response(body, "429 Too Many Requests")]) as server:
        (exchange,) = ask(server.url)
    assert exchange.problem == problem


def test_https_certificates_are_checked_unless_told_otherwise(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext"
    subprocess.run(
        [*command.split(), "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
        check=True,
        capture_output=True,
        timeout=60,
    )
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)

    async def use(client: HttpClient) -> Exchange:
        return await client.send(client.request("GET", "/"), 20)

    with ScriptedServer(lambda request: [response({"safe": 1})], tls) as server:
        refused = with_client(server.url, use)
        taken = with_client(server.url, use, verify=False)
    assert refused.problem is not None
    assert "certificate" in refused.problem.lower()
    assert taken.body == b'{"safe": 1}'


@pytest.mark.parametrize(
    "url",
    ["", "127.0.0.1:8000", "ftp://x", "http://", "http://h:99999", "http://h/a?b", "http://u:p@h"],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(InvalidParameterError, match="--base-url"):
        ServerAddress.from_url(url)


def test_addresses() -> None:
    address = ServerAddress.from_url("https://[::1]/v/")
    assert (address.host, address.port, address.secure, address.prefix) == ("::1", 443, True, "/v")
    assert (address.authority, address.url) == ("[::1]", "https://[::1]/v")
    assert ServerAddress.from_url("http://h:8000").authority == "h:8000"
    for url in ("http://h/a/v1", "http://h/a/v1/", "http://h/a"):  # as clients of the API have it
        assert ServerAddress.from_url(url).prefix == "/a"


@pytest.mark.parametrize(
    ("name", "value"), [("A", "x\r\nB: y"), ("A B", "x"), ("", "x"), ("A", "é")]
)
def test_headers_that_could_be_others_are_refused(name: str, value: str) -> None:
    with pytest.raises(InvalidParameterError, match="header"):
        HttpClient(ServerAddress.from_url("http://h"), {name: value})
