"""Bodies: types that are read, and how one ends before its end."""

from __future__ import annotations

import asyncio

import pytest
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message

from farthing.openai_protocol.errors import RequestError
from farthing.server.http.body import read_body
from farthing.server.http.limits import HttpLimits

JSON = ("content-type", "application/json")


def body_of(
    *messages: Message,
    headers: list[tuple[str, str]] | None = None,
    limit: int = 100,
    cut: RequestError | None = None,
) -> bytes:
    coming = iter(messages)

    async def receive() -> Message:
        return next(coming)

    raw = Headers(raw=[(n.encode(), v.encode("latin-1")) for n, v in headers or [JSON]]).raw
    state = {} if cut is None else {"cut": cut}
    scope = {"type": "http", "method": "POST", "headers": raw, "state": state}
    request = Request(scope, receive)

    async def read() -> bytes:
        return await read_body(request, HttpLimits(max_body_bytes=limit))

    return asyncio.run(read())


def part(data: bytes, more: bool = False) -> Message:
    return {"type": "http.request", "body": data, "more_body": more}


def test_a_body_is_all_of_its_parts() -> None:
    assert body_of(part(b"{}")) == b"{}"
    assert body_of(part(b"")) == b""
    assert body_of(part(b"{", True), part(b"", True), part(b"}")) == b"{}"
    assert body_of(part(b"x" * 100)) == b"x" * 100


@pytest.mark.parametrize(
    "value",
    [
        "application/json",
        "Application/JSON",
        " application/json ",
        "application/json; charset=utf-8",
        'application/json;charset="UTF-8"',
        "application/json; charset=utf8; profile=x",
        "application/json;",
    ],
)
def test_json_is_read_however_it_is_written(value: str) -> None:
    assert body_of(part(b"{}"), headers=[("content-type", value)]) == b"{}"


@pytest.mark.parametrize(
    "headers",
    [
        [("accept", "*/*")],
        [("content-type", "")],
        [("content-type", "text/plain")],
        [("content-type", "text/plain; application/json")],
        [("content-type", "application/x-www-form-urlencoded")],
        [("content-type", "multipart/form-data; boundary=x")],
        [("content-type", "application/jsonx")],
        [("content-type", "application/json+x")],
        [("content-type", "application/json, text/plain")],
        [("content-type", "x" * 5000)],
        [("content-type", "\xff\x00")],
        [("content-type", "application/json; charset=latin-1")],
        [("content-type", "application/json; charset=utf-16")],
        [("content-type", "application/json; charset*=utf-8''utf-16")],
        [JSON, JSON],
        [JSON, ("content-encoding", "gzip")],
        [JSON, ("content-encoding", "identity, br")],
        [JSON, ("content-encoding", "identity"), ("content-encoding", "deflate")],
    ],
)
def test_another_type_is_refused_before_anything_is_read(headers: list[tuple[str, str]]) -> None:
    with pytest.raises(RequestError) as refused:
        body_of(headers=headers)  # there is nothing to read: it would be noticed
    assert refused.value.status == 415
    assert refused.value.code == "unsupported_media_type"
    assert len(str(refused.value)) < 200


def test_identity_is_no_encoding() -> None:
    assert body_of(part(b"{}"), headers=[JSON, ("content-encoding", "Identity")]) == b"{}"


def test_a_body_over_the_limit_is_refused_where_it_crosses() -> None:
    with pytest.raises(RequestError, match="longer than 100 bytes") as refused:
        body_of(part(b"x" * 60, True), part(b"x" * 41, True))
    assert (refused.value.status, refused.value.code) == (413, "request_too_large")


def test_a_client_that_leaves_is_told_from_a_body_that_is_broken_off() -> None:
    with pytest.raises(ClientDisconnect):
        body_of(part(b"{", True), {"type": "http.disconnect"})
    slow = RequestError("too slow", status=408)
    with pytest.raises(RequestError) as refused:
        body_of(part(b"{", True), {"type": "http.disconnect"}, cut=slow)
    assert refused.value is slow
