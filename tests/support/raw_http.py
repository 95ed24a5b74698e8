"""HTTP as raw bytes, right and wrong."""

from __future__ import annotations

import json
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

PATIENCE = 20.0
"""Seconds after which a test gives up; nothing is measured with it."""


def wait_until(condition: Callable[[], object]) -> None:
    """Returns when ``condition()`` holds; fails if it never does."""
    give_up = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < give_up, "it never came to be"
        time.sleep(0.005)


@dataclass(frozen=True)
class RawResponse:
    """A response as it came."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> dict[str, Any]:
        """The error object that must be all of the body."""
        assert len(self.body) <= 8192
        assert self.headers["content-type"] == "application/json"
        whole = json.loads(self.body)
        assert list(whole) == ["error"]
        assert list(whole["error"]) == ["message", "type", "param", "code"]
        error: dict[str, Any] = whole["error"]
        return error


class RawClient:
    """A connection that sends any bytes."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None, receive_buffer: int = 0):
        plain = socket.socket()
        plain.settimeout(PATIENCE)
        if receive_buffer:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        plain.connect(("127.0.0.1", port))
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = tls.wrap_socket(plain, server_hostname="localhost") if tls else plain
        self._rest = bytearray()

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> RawClient:
        """Sends all of ``data``."""
        self.socket.sendall(data)
        return self

    def _more(self) -> bytes:
        data = self.socket.recv(1 << 20)
        self._rest += data
        return data

    def _take(self, end: int) -> bytes:
        taken = bytes(self._rest[:end])
        del self._rest[:end]
        return taken

    def _until(self, mark: bytes) -> bytes:
        while mark not in self._rest:
            assert self._more(), f"closed after {bytes(self._rest[:200])!r}"
        return self._take(self._rest.index(mark) + len(mark))

    def _exactly(self, length: int) -> bytes:
        while len(self._rest) < length:
            assert self._more(), f"closed after {bytes(self._rest[:200])!r}"
        return self._take(length)

    def head(self) -> tuple[int, dict[str, str]]:
        """Status and headers of the next response."""
        lines = self._until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines[1:] if line)
        return int(lines[0].split(" ")[1]), headers

    def chunks(self) -> Iterator[bytes]:
        """The chunks of a body, whole, until the last."""
        while length := int(self._until(b"\r\n"), 16):
            yield self._exactly(length)
            assert self._exactly(2) == b"\r\n"
        assert self._exactly(2) == b"\r\n"

    def response(self) -> RawResponse:
        """The next response, all of it."""
        status, headers = self.head()
        if headers.get("transfer-encoding") == "chunked":
            body = b"".join(self.chunks())
        else:
            body = self._exactly(int(headers.get("content-length", "0")))
        return RawResponse(status, headers, body)

    def until_closed(self) -> bytes:
        """What else comes before the server closes; it must close in order, not by a reset."""
        while self._more():
            pass
        return self._take(len(self._rest))

    def is_cut(self) -> bool:
        """Waits for the server to end the connection, in whatever way."""
        try:
            while self.socket.recv(65_536):
                pass
        except ConnectionError:
            pass
        return True


def get(path: str, *headers: str, host: str = "localhost") -> bytes:
    """The bytes of a request without a body."""
    lines = [f"GET {path} HTTP/1.1", f"Host: {host}", *headers, "", ""]
    return "\r\n".join(lines).encode("latin-1")


def post(path: str, body: bytes, *headers: str, length: int | None = None) -> bytes:
    """The bytes of a request with a body, of whose ``length`` it may be silent or lie."""
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: localhost",
        "Content-Type: application/json",
        *headers,
        f"Content-Length: {len(body) if length is None else length}",
        "",
        "",
    ]
    return "\r\n".join(lines).encode("latin-1") + body


def chunked(path: str, *chunks: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    """The bytes of a request whose body is chunks."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        "Transfer-Encoding: chunked\r\n\r\n"
    ).encode()
    return head + b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + end
