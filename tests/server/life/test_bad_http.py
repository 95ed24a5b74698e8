"""Rows H of the fault plan against a server process, each beside a stream that must not notice."""

from __future__ import annotations

import contextlib
import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from support.control_stream import control_stream
from support.raw_http import RawClient, RawResponse, chunked, get, post
from support.reachable import CHAT, COMPLETIONS
from support.server_process import ServerProcess

MEGABYTE = 1 << 20
LIMIT = 8 * MEGABYTE
GOOD = json.dumps({"prompt": "a", "max_tokens": 1}).encode()
LYING = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def with_heads(*heads: str) -> bytes:
    return (LYING + "".join(f"{head}\r\n" for head in heads) + "\r\n").encode() + GOOD


# What is sent, the status, and the code that is told (None: any).
AT_ONCE: dict[str, tuple[bytes, int, str | None]] = {
    "H1": (post(CHAT, b"{", length=LIMIT + 1), 413, "request_too_large"),
    "H1 of no end": (post(CHAT, b"{", length=10**18), 413, "request_too_large"),
    "H2": (chunked(COMPLETIONS, *[b" " * MEGABYTE] * 9), 413, "request_too_large"),
    "H3 one": (get("/health", "X-Long: " + "a" * MEGABYTE), 431, None),
    "H3 many": (get("/health", *[f"X-{i}: a" for i in range(1000)]), 431, None),
    "H7 chunk": (with_heads("Transfer-Encoding: chunked")[: -len(GOOD)] + b"zz\r\n", 400, None),
    "H7 both": (with_heads("Content-Length: 5", "Transfer-Encoding: chunked"), 400, None),
    "H7 two": (with_heads("Content-Length: 5", "Content-Length: 6"), 400, None),
    "H10 route": (get("/v1/none"), 404, "route_not_found"),
    "H10 method": (post("/health", b"{}"), 405, "method_not_allowed"),
    "H10 method of chat": (get(CHAT), 405, "method_not_allowed"),
    "H10 climbing": (get("/v1/models/..%2f..%2fetc%2fpasswd"), 404, "model_not_found"),
    "H10 climbing out": (get("/..%2f..%2fetc/passwd"), 404, "route_not_found"),
    "H11 none": (post(CHAT, GOOD).replace(b"Content-Type", b"X"), 415, None),
    "H11 text": (post(CHAT, GOOD).replace(b"application/json", b"text/plain"), 415, None),
    "H11 gzip": (post(CHAT, b"\x1f\x8b", "Content-Encoding: gzip"), 415, "unsupported_media_type"),
    "H13 host": (get("/health", host="evil.example"), 403, "host_not_allowed"),
    "H13 origin": (get("/health", "Origin: http://evil.example"), 403, "origin_not_allowed"),
    "H13 post": (post(CHAT, GOOD, "Origin: null"), 403, "origin_not_allowed"),
}


def healthy(server: ServerProcess) -> bool:
    return server.status("/health") == 200


def test_what_is_wrong_at_once(server: ServerProcess) -> None:
    with control_stream(server):
        for kind, (sent, status, code) in AT_ONCE.items():
            with RawClient(server.address[1]) as client:
                with contextlib.suppress(ConnectionError):  # it may close before all is sent
                    client.send(sent)
                response = client.response()
            assert response.status == status, (kind, response)
            assert code in (None, response.error["code"]), (kind, response)
            assert healthy(server)


def trickle(server: ServerProcess, begun: bytes, piece: bytes) -> RawResponse | None:
    """What is told to a client that sends a byte now and then; None: it is just cut off."""
    with RawClient(server.address[1]) as client:
        client.send(begun)
        client.socket.settimeout(0.1)
        raw = b""
        end = time.monotonic() + 30
        while time.monotonic() < end:
            try:
                if piece:
                    client.send(piece)
                data = client.socket.recv(65_536)
            except TimeoutError:
                continue
            except ConnectionError:
                break
            if not data:
                break
            raw += data
    assert time.monotonic() < end
    if not raw:
        return None
    head, _, body = raw.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    headers: dict[str, Any] = dict(line.split(": ", 1) for line in lines[1:])
    return RawResponse(int(lines[0].split()[1]), headers, body)


# What is sent at first and then, bit by bit, and the status that is told (None: nothing is).
SLOW: dict[str, tuple[bytes, bytes, int | None]] = {
    "H4": (b"GET /health HTTP/1.1\r\nX-Slow: ", b"a", 408),
    "H5": (post(CHAT, b"{", length=1000), b" ", 408),
    "H5 silent": (post(CHAT, b"{", length=1000), b"", 408),
    "H6": (b"", b"", None),
}


def test_what_is_too_slow(server: ServerProcess) -> None:
    with control_stream(server), ThreadPoolExecutor(len(SLOW)) as pool:
        waiting = {
            kind: pool.submit(trickle, server, begun, piece)
            for kind, (begun, piece, _) in SLOW.items()
        }
        for kind, (_, _, status) in SLOW.items():
            response = waiting[kind].result()
            assert (response and response.status) == status, kind
            if response is not None:
                assert response.error["type"] == "invalid_request_error"
        assert healthy(server)
