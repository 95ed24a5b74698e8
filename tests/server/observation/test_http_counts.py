"""HTTP requests counted by labels of which strangers cannot make more, and the access log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

import pytest
from fastapi import APIRouter, FastAPI, Request
from starlette.responses import StreamingResponse
from starlette.types import Message, Scope

from farthing.server.observation.http_counts import HttpCounts, ObservedApp
from farthing.server.observation.request_context import current_request_id
from farthing.server.principal import Principal

PATHS = ("/v1/chat/completions", "/health")


def application(ids: list[str | None] | None = None) -> FastAPI:
    app = FastAPI()
    router = APIRouter(prefix="/v1")

    @router.get("/models/{name:path}")
    async def model(name: str) -> str:
        return name

    @router.post("/chat/completions")
    async def chat(request: Request) -> StreamingResponse:
        request.scope["state"]["request_id"] = "r-9"
        request.scope["state"]["principal"] = Principal("alice")
        if ids is not None:
            ids.append(current_request_id())

        async def chunks() -> Any:
            for _ in range(3):
                yield b"12345"

        return StreamingResponse(chunks())

    @app.get("/health")
    async def health() -> str:
        return "ok"

    @app.get("/broken")
    async def broken() -> str:
        raise RuntimeError("a bug")

    app.include_router(router)
    return app


def ask(app: Any, method: str, path: str, headers: Iterable[tuple[bytes, bytes]] = ()) -> int:
    """The status of a request's answer, or 0 if there was none."""
    scope: Scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"api_key=secret-query",
        "root_path": "",
        "headers": list(headers),
        "client": ("10.1.2.3", 4567),
        "server": ("127.0.0.1", 8000),
        "scheme": "http",
    }
    sent: list[Message] = []

    bodies = [b""]

    async def receive() -> Message:
        if not bodies:
            await asyncio.Event().wait()  # the client stays
        return {"type": "http.request", "body": bodies.pop(), "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    return sent[0]["status"] if sent else 0


def test_requests_are_counted_by_route() -> None:
    counts = HttpCounts()
    app = ObservedApp(application(), counts, paths=PATHS)
    for path in ("a", "b", "c/../d", "%2e%2e"):
        assert ask(app, "GET", f"/v1/models/{path}") == 200
    for path in ("/nothing", "/v1/modelz", "/x" * 500, "/../../etc/passwd"):
        assert ask(app, "GET", path) == 404
    assert ask(app, "POST", "/v1/chat/completions") == 200
    assert ask(app, "GET", "/v1/chat/completions") == 405
    assert ask(app, "BREW", "/health") == 405
    assert ask(app, "FROTH", "/health") == 405
    paths = {path for _, path, _ in counts.requests}
    (template,) = {path for path in paths if "{" in path}
    assert template in ("/v1/models/{name:path}", "/models/{name:path}")
    assert paths == {template, "unmatched", "/v1/chat/completions", "/health"}
    assert counts.requests["GET", template, 200] == 4
    assert counts.requests["GET", "unmatched", 404] == 4
    assert counts.requests["other", "/health", 405] == 2
    assert counts.seconds[template].count == 4
    assert sum(h.count for h in counts.seconds.values()) == counts.requests.total() == 12
    assert counts.in_progress == 0


def test_what_is_refused_before_it_is_routed_is_known_by_its_path() -> None:
    counts = HttpCounts()

    async def guard(scope: Scope, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 401, "headers": []})
        await send({"type": "http.response.body", "body": b"no"})

    app = ObservedApp(guard, counts, paths=PATHS)
    assert ask(app, "POST", "/v1/chat/completions") == 401
    assert ask(app, "POST", "/v1/secret-path") == 401
    assert set(counts.requests) == {
        ("POST", "/v1/chat/completions", 401),
        ("POST", "unmatched", 401),
    }


def test_a_bug_is_a_500_and_goes_on_up() -> None:
    counts = HttpCounts()
    with pytest.raises(RuntimeError, match="a bug"):
        ask(ObservedApp(application(), counts, paths=PATHS), "GET", "/broken")
    assert counts.requests == {("GET", "/broken", 500): 1}
    assert counts.in_progress == 0


def test_who_goes_before_an_answer_is_a_499() -> None:
    counts = HttpCounts()

    async def gone(scope: Scope, receive: Any, send: Any) -> None:
        assert counts.in_progress == 1

    assert ask(ObservedApp(gone, counts, paths=PATHS), "GET", "/health") == 0
    assert counts.requests == {("GET", "/health", 499): 1}


def fields(records: Iterable[logging.LogRecord]) -> list[dict[str, Any]]:
    return [record.__dict__["fields"] for record in records]


def test_the_access_log(caplog: pytest.LogCaptureFixture) -> None:
    ids: list[str | None] = []
    headers = [(b"authorization", b"Bearer secret-key"), (b"cookie", b"secret-cookie")]
    app = ObservedApp(application(ids), HttpCounts(), paths=PATHS)
    with caplog.at_level(logging.INFO, logger="farthing.access"):
        ask(app, "POST", "/v1/chat/completions", headers)
        ask(app, "GET", "/v1/secret-path", headers)
        ask(app, "GET", "/health")
    chat, other = fields(caplog.records)
    seconds = chat.pop("seconds")
    assert chat == {
        "method": "POST",
        "path": "/v1/chat/completions",
        "status": 200,
        "bytes": 15,
        "client": "10.1.2.3",
        "key_name": "alice",
    }
    assert 0 <= seconds < 10
    assert (other["path"], other["status"]) == ("unmatched", 404)
    assert "secret" not in repr([vars(record) for record in caplog.records])
    assert ids == ["r-9"], "what is logged meanwhile is the request's"


def test_probes_are_logged_for_debugging_only(caplog: pytest.LogCaptureFixture) -> None:
    app = ObservedApp(application(), HttpCounts(), paths=PATHS)
    with caplog.at_level(logging.DEBUG, logger="farthing.access"):
        ask(app, "GET", "/health")
    (record,) = caplog.records
    assert record.levelno == logging.DEBUG


def test_the_access_log_may_be_off(caplog: pytest.LogCaptureFixture) -> None:
    counts = HttpCounts()
    app = ObservedApp(application(), counts, paths=PATHS, log=False)
    with caplog.at_level(logging.DEBUG, logger="farthing.access"):
        ask(app, "POST", "/v1/chat/completions")
    assert not caplog.records
    assert counts.requests.total() == 1
