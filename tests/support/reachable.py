"""A server that listens somewhere, as tests ask it."""

from __future__ import annotations

import json
import socket
from typing import Any

import httpx2

from support.event_streams import events_of

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"


class Reachable:
    """What is at ``url``."""

    def __init__(self, url: str, **client: Any) -> None:
        self.url = url
        self.client = httpx2.Client(base_url=url, timeout=60, **client)

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        url = httpx2.URL(self.url)
        return url.host, url.port or 0

    def post(self, path: str, body: Any) -> httpx2.Response:
        """The whole response to a body."""
        return self.client.post(path, json=body)

    def answer(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The object of an answer, which must be one."""
        response = self.post(path, body)
        assert response.status_code == 200, response.text
        found: dict[str, Any] = response.json()
        return found

    def stream(self, path: str, body: dict[str, Any]) -> bytes:
        """All bytes of a stream."""
        response = self.post(path, {**body, "stream": True})
        assert response.status_code == 200, response.text
        assert response.headers["content-type"].startswith("text/event-stream")
        return response.content


class Streaming:
    """A stream that is read while it goes on, over a socket of its own."""

    def __init__(self, served: Reachable, path: str, body: dict[str, Any]) -> None:
        raw = json.dumps({**body, "stream": True}).encode()
        self._socket = send_request(served, path, raw)
        self._file = self._socket.makefile("rb")
        self.status = int(self._file.readline().split()[1])
        self.headers: dict[str, str] = {}
        while (line := self._file.readline()) != b"\r\n":
            name, _, value = line.decode().strip().partition(": ")
            self.headers[name.lower()] = value
        self.pieces: list[bytes] = []

    def piece(self) -> bytes:
        """What the server sent at a time; empty at the end of the response."""
        size = int(self._file.readline(), 16)
        piece = self._file.read(size)
        assert self._file.read(2) == b"\r\n"
        if piece:
            self.pieces.append(piece)
        return piece

    def rest(self) -> bytes:
        """All that was sent, once the response has ended."""
        while self.piece():
            pass
        return b"".join(self.pieces)

    def events(self) -> list[dict[str, Any]]:
        """The events so far."""
        return events_of(b"".join(self.pieces))

    def leave(self) -> None:
        """Closes the connection at once, with a reset."""
        self._file.close()
        hang_up(self._socket)


def send_request(
    served: Reachable,
    path: str,
    raw: bytes,
    *,
    length: int | None = None,
    receive_buffer: int | None = None,
) -> socket.socket:
    """A connection on which a request has been sent; ``length``: what it says of its body.

    ``receive_buffer``: bytes that the system keeps of an answer that is not read.
    """
    connection = socket.socket()
    if receive_buffer is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.settimeout(30)
    connection.connect(served.address)
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(raw) if length is None else length}\r\n\r\n"
    )
    connection.sendall(head.encode() + raw)
    return connection


def hang_up(connection: socket.socket) -> None:
    """Closes with a reset."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    connection.close()
