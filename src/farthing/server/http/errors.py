"""Refusals as HTTP responses."""

from __future__ import annotations

import json
import math

from starlette.responses import Response

from farthing.openai_protocol.errors import RequestError


def error_bytes(error: RequestError) -> bytes:
    """The JSON of the error object."""
    return json.dumps(error.body(), ensure_ascii=False).encode()


def error_headers(error: RequestError) -> dict[str, str]:
    """When to come again, whole seconds and exactly; whether it makes sense to."""
    headers = {}
    if error.retry_after is not None:
        headers["retry-after"] = str(max(math.ceil(error.retry_after), 1))
        headers["retry-after-ms"] = str(max(math.ceil(error.retry_after * 1000), 1))
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    return headers


def error_response(error: RequestError) -> Response:
    """The whole response to a request that is refused or has failed."""
    return Response(
        error_bytes(error),
        status_code=error.status,
        headers=error_headers(error),
        media_type="application/json",
    )
