"""What is around a request in a line of the input, and around a response in one of the output."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from farthing.batch.lines import Line
from farthing.openai_protocol.chat import ChatRequest
from farthing.openai_protocol.completions import CompletionRequest
from farthing.openai_protocol.endpoints import parse_request
from farthing.openai_protocol.errors import RequestError, shown
from farthing.openai_protocol.json_body import read_object, too_large
from farthing.openai_protocol.validation import Strict, parse

MAX_CUSTOM_ID = 512  # characters

DUPLICATE = "duplicate_custom_id"
"""The error code of a second line with a ``custom_id``."""

CustomId = Annotated[str, Field(min_length=1, max_length=MAX_CUSTOM_ID)]


class _Named(Strict):
    custom_id: CustomId


class _Envelope(_Named):
    method: str
    url: str
    body: dict[str, Any]


def read_line(line: Line) -> dict[str, object]:
    """The object of a line. Raises :class:`RequestError`."""
    if line.raw is None:
        raise too_large()
    return read_object(line.raw)


def custom_id_of(values: Mapping[str, object]) -> str:
    """The name by which the caller knows a line. Raises :class:`RequestError`."""
    return parse(_Named, values).custom_id


def request_of(values: Mapping[str, object]) -> ChatRequest | CompletionRequest:
    """The request of a line. Raises :class:`RequestError`."""
    envelope = parse(_Envelope, values)
    if envelope.method != "POST":
        raise RequestError(
            f"method: {shown(envelope.method)} must be 'POST'", status=405, param="method"
        )
    request = parse_request(envelope.url, envelope.body)
    if request.stream:
        raise RequestError("stream: the answers of a batch come whole", param="stream")
    return request


def duplicate(custom_id: str) -> RequestError:
    """The error of a second line with a ``custom_id``."""
    return RequestError(
        f"custom_id: {shown(custom_id)} is an earlier line's", param="custom_id", code=DUPLICATE
    )


def answered(line: Line, custom_id: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """The output line of a request that was answered."""
    return _output(line, custom_id, 200, body)


def refused(line: Line, custom_id: str | None, error: RequestError) -> dict[str, Any]:
    """The output line of one that was refused or failed. ``custom_id`` None: it has none."""
    body = error.body()
    body["error"]["message"] = f"line {line.number}: {error}"
    return _output(line, custom_id, error.status, body)


def _output(
    line: Line, custom_id: str | None, status: int, body: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "id": line.name,
        "custom_id": custom_id,
        "response": {
            "status_code": status,
            "request_id": f"req_{secrets.token_hex(16)}",
            "body": body,
        },
        "error": None,
    }
