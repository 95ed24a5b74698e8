"""The outermost layer: ids, hosts, origins, CORS and keys, before anything of a route runs."""

from __future__ import annotations

import asyncio
import re

import pytest
from starlette.types import Message, Receive, Scope, Send

from farthing.server.access.guard import OPEN_PATHS, guard
from farthing.server.access.keys import ApiKeys
from farthing.server.access.rules import AccessRules
from farthing.server.principal import ANYBODY, Principal
from support.asgi import Answer, ask

HERE = ("Host", "localhost:8000")


async def inside(scope: Scope, receive: Receive, send: Send) -> None:
    """An application that lets everything through and streams two chunks."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-inside", b"1")]})
    await send({"type": "http.response.body", "body": b"o", "more_body": True})
    await send({"type": "http.response.body", "body": b"k", "more_body": False})


def refused(answer: Answer, status: int, code: str) -> bool:
    assert answer.header("x-inside") is None
    return answer.status == status and answer.error["code"] == code


KEYED = guard(inside, AccessRules(ApiKeys.from_sources(["right-key", "other-key"])))
OPEN = guard(inside, AccessRules())


def test_a_request_gets_an_id_that_its_answer_and_the_application_know() -> None:
    answer = ask(OPEN, headers=[HERE])
    assert answer.body == b"ok"
    made = answer.header("x-request-id")
    assert made is not None
    assert re.fullmatch("[0-9a-f]{32}", made)
    assert answer.scope["state"] == {"request_id": made, "principal": ANYBODY}
    assert ask(OPEN, headers=[HERE]).header("x-request-id") != made


def test_a_sane_id_of_the_client_is_kept() -> None:
    for given in ("abc", "7d6f8f9e-1c5b-4a5e", "A_b.c:d@e/f+g=", "x" * 128):
        assert ask(OPEN, headers=[HERE, ("X-Request-ID", given)]).header("x-request-id") == given


@pytest.mark.parametrize(
    "given", ["", " ", "a b", "x" * 129, "a\r\nSet-Cookie: b", "é", '"', "a\n"]
)
def test_another_id_is_replaced(given: str) -> None:
    answer = ask(OPEN, headers=[HERE, ("X-Request-ID", given)])
    assert re.fullmatch("[0-9a-f]{32}", answer.header("x-request-id") or "")


def test_a_refusal_has_the_id_too() -> None:
    for headers in ([("Host", "evil.example")], [HERE, ("Origin", "http://evil.example")], [HERE]):
        answer = ask(KEYED, "/v1/models", headers=[*headers, ("X-Request-ID", "mine")])
        assert answer.status in (401, 403)
        assert answer.header("x-request-id") == "mine"


def test_a_foreign_host_or_origin_is_forbidden_on_every_path() -> None:
    for path in ("/v1/models", "/health", "/metrics", "/"):
        assert refused(ask(OPEN, path, headers=[("Host", "evil.example")]), 403, "host_not_allowed")
        foreign = [HERE, ("Origin", "http://evil.example")]
        for method in ("GET", "POST", "OPTIONS"):
            answer = ask(OPEN, path, headers=foreign, method=method)
            assert refused(answer, 403, "origin_not_allowed")
            assert answer.header("access-control-allow-origin") is None


def test_a_long_host_is_not_repeated() -> None:
    answer = ask(OPEN, headers=[("Host", "evil." * 1000)])
    assert refused(answer, 403, "host_not_allowed")
    assert len(answer.body) < 400
    assert answer.body.count(b"evil.") < 15


def test_without_a_host_it_is_no_browser() -> None:
    assert ask(OPEN).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("Authorization", "")],
        [("Authorization", "Bearer")],
        [("Authorization", "Bearer ")],
        [("Authorization", "right-key")],
        [("Authorization", "Bearer wrong-key")],
        [("Authorization", "Bearer right-key2")],
        [("Authorization", "Bearer right-ke")],
        [("Authorization", "Bearer RIGHT-KEY")],
        [("Authorization", "Bearer right-key other-key")],
        [("Authorization", "Bearer right-key,other-key")],
        [("Authorization", "Bearer \xff\xfe")],
        [("Authorization", "Bearer " + "x" * 60_000)],
        [("Authorization", "Basic right-key")],
        [("Authorization", "Bearer wrong"), ("Authorization", "Bearer right-key")],
        [("X-Api-Key", "right-key")],
        [("Cookie", "right-key")],
    ],
)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/tokenize", "/server_info", "/nowhere"])
def test_without_the_right_key_nothing_is_reached(
    headers: list[tuple[str, str]], path: str
) -> None:
    answer = ask(KEYED, path, method="POST", headers=[HERE, *headers])
    assert refused(answer, 401, "invalid_api_key")
    assert answer.error["type"] == "authentication_error"
    assert answer.header("www-authenticate") == "Bearer"
    assert len(answer.body) < 400
    assert b"right-key" not in answer.body


@pytest.mark.parametrize("value", ["Bearer right-key", "bearer right-key", "BEARER  right-key "])
def test_with_the_right_key_the_application_knows_whose(value: str) -> None:
    answer = ask(KEYED, "/v1/models", headers=[HERE, ("Authorization", value)])
    assert answer.body == b"ok"
    assert answer.scope["state"]["principal"] == Principal("key-1")


@pytest.mark.parametrize("path", sorted(OPEN_PATHS))
def test_probes_and_collectors_need_no_key(path: str) -> None:
    assert ask(KEYED, path, headers=[HERE]).body == b"ok"
    for near in (path + "/", "/" + path, path.upper(), path + "/x", path + "%00"):
        assert refused(ask(KEYED, near, headers=[HERE]), 401, "invalid_api_key")


def test_cors_is_closed_unless_origins_are_given() -> None:
    answer = ask(OPEN, headers=[HERE, ("Origin", "http://localhost:8000")])
    assert answer.status == 200
    assert not [name for name, _ in answer.headers if name.startswith("access-control")]


WEB = guard(
    inside,
    AccessRules(
        ApiKeys.from_sources(["right-key"]),
        allowed_origins=("http://localhost:3000",),
        allowed_methods=("GET", "POST"),
        allowed_headers=("Authorization",),
        allow_credentials=True,
    ),
)
PAGE = ("Origin", "http://localhost:3000")


def test_a_page_that_is_allowed_asks_first_and_then_reads() -> None:
    preflight = ask(
        WEB,
        "/v1/models",
        method="OPTIONS",
        headers=[
            HERE,
            PAGE,
            ("Access-Control-Request-Method", "POST"),
            ("Access-Control-Request-Headers", "authorization,content-type"),
        ],
    )
    assert preflight.status == 200
    assert preflight.header("x-inside") is None
    assert preflight.header("access-control-allow-origin") == PAGE[1]
    assert preflight.header("access-control-allow-credentials") == "true"
    answer = ask(WEB, "/v1/models", headers=[HERE, PAGE, ("Authorization", "Bearer right-key")])
    assert answer.body == b"ok"
    assert answer.header("access-control-allow-origin") == PAGE[1]
    exposed = answer.header("access-control-expose-headers")
    assert exposed == "x-request-id, retry-after, retry-after-ms"


def test_pages_are_told_the_methods_that_there_are() -> None:
    public = guard(inside, AccessRules(loopback=False, allowed_origins=("*",)))
    asked = [PAGE, ("Access-Control-Request-Method", "POST")]
    answer = ask(public, "/v1/models", method="OPTIONS", headers=asked)
    assert answer.status == 200
    assert answer.header("access-control-allow-methods") == "GET, HEAD, OPTIONS, POST"


def test_a_page_can_read_that_its_key_is_wrong() -> None:
    answer = ask(WEB, "/v1/models", headers=[HERE, PAGE])
    assert refused(answer, 401, "invalid_api_key")
    assert answer.header("access-control-allow-origin") == PAGE[1]


def test_a_preflight_of_what_is_not_allowed_is_an_error_object() -> None:
    asked = [HERE, PAGE, ("Access-Control-Request-Method", "DELETE")]
    answer = ask(WEB, "/v1/models", method="OPTIONS", headers=asked)
    assert refused(answer, 400, "cors")
    public = guard(inside, AccessRules(loopback=False, allowed_origins=("http://a.example",)))
    asked = [HERE, ("Origin", "http://b.example"), ("Access-Control-Request-Method", "POST")]
    answer = ask(public, "/v1/models", method="OPTIONS", headers=asked)
    assert refused(answer, 400, "cors")
    assert answer.header("access-control-allow-origin") is None


def test_what_is_not_http_is_closed_or_passed_on() -> None:
    seen: list[str] = []
    sent: list[Message] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["type"])

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    async def both() -> None:
        door = guard(app, AccessRules())
        await door({"type": "lifespan"}, receive, send)
        await door({"type": "websocket", "path": "/", "headers": []}, receive, send)

    asyncio.run(both())
    assert seen == ["lifespan"]
    assert sent == [{"type": "websocket.close", "code": 1008}]
