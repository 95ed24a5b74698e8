"""A request of HTTP and what came back, with the times."""

from __future__ import annotations

import json
from typing import Any


class Exchange:
    """One request and its response. Times are seconds of ``time.perf_counter``.

    A client fills it while bytes come; nothing of them is looked at until all is over.
    """

    __slots__ = ("ended", "error", "headers", "headers_at", "reads", "started", "status")

    def __init__(self, started: float) -> None:
        self.started = started  # before the request was sent, before a connection was made for it
        self.headers_at: float | None = None
        self.ended: float | None = None  # when the response was whole, or was given up
        self.status: int | None = None
        self.headers: dict[str, str] = {}  # names in lower case
        self.reads: list[tuple[float, bytes]] = []  # pieces of the body, when each came
        self.error: str | None = None  # why there is no whole response

    @property
    def body(self) -> bytes:
        """All of the body that came."""
        return b"".join([piece for _, piece in self.reads])

    @property
    def problem(self) -> str | None:
        """Why the response is none to use, in a line: broken off, or not of status 200."""
        if self.error is not None:
            return self.error
        if self.status == 200:
            return None
        return f"HTTP {self.status}: {self._reason()}"

    def _reason(self) -> str:
        try:
            return error_message(json.loads(self.body)) or self._beginning()
        except (ValueError, RecursionError):
            return self._beginning()

    def _beginning(self) -> str:
        return " ".join(self.body[:200].decode(errors="replace").split()) or "no body"


def error_message(body: Any) -> str | None:
    """What ``{"error": ...}`` says, in one of the forms that servers write it."""
    match body:
        case {"error": {"message": str(message)}} | {"error": str(message)}:
            return message
        case {"error": error} if error is not None:
            return json.dumps(error, ensure_ascii=False)[:200]
    return None
