"""Requests to an ASGI application without a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp, Message, Scope


@dataclass(frozen=True)
class Answer:
    """What an application sent."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes
    scope: Scope

    def header(self, name: str) -> str | None:
        """The only value of a header, or None."""
        values = [value for known, value in self.headers if known == name]
        assert len(values) <= 1, values
        return values[0] if values else None

    @property
    def error(self) -> dict[str, Any]:
        """The error object that must be all of the body."""
        whole = json.loads(self.body)
        assert list(whole) == ["error"]
        assert list(whole["error"]) == ["message", "type", "param", "code"]
        assert len(self.body) <= 8192
        error: dict[str, Any] = whole["error"]
        return error


def ask(
    app: ASGIApp,
    path: str = "/",
    *,
    method: str = "GET",
    headers: Sequence[tuple[str, str]] = (),
    body: Sequence[Message] = ({"type": "http.request", "body": b"", "more_body": False},),
) -> Answer:
    """The answer to one request whose body comes as ``body``."""
    scope: Scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "scheme": "http",
        "http_version": "1.1",
        "server": ("127.0.0.1", 8000),
        "client": ("127.0.0.1", 50000),
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in headers],
    }
    coming = iter(body)
    sent: list[Message] = []

    async def receive() -> Message:
        return next(coming)

    async def send(message: Message) -> None:
        sent.append(message)

    async def whole() -> None:
        await app(scope, receive, send)

    asyncio.run(whole())
    start = sent[0]
    assert start["type"] == "http.response.start"
    return Answer(
        start["status"],
        [(name.decode("latin-1"), value.decode("latin-1")) for name, value in start["headers"]],
        b"".join(message["body"] for message in sent[1:]),
        scope,
    )
