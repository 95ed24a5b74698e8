"""The errors of connections and of what comes over them."""

from __future__ import annotations

from farthing.openai_protocol.errors import RequestError
from farthing.server.http.limits import HttpLimits

SOON = 1.0
"""Seconds after which to try again what failed for others' sake."""


def bad_http(problem: str) -> RequestError:
    """Of what is no request, or more than one."""
    return RequestError(f"not a valid HTTP request: {problem}", code="bad_http")


def body_too_large(limits: HttpLimits) -> RequestError:
    """Of a body over ``limits.max_body_bytes``."""
    return RequestError(
        f"the request is longer than {limits.max_body_bytes} bytes",
        status=413,
        code="request_too_large",
    )


def head_too_large(limits: HttpLimits, url_bytes: int) -> RequestError:
    """Of a head over ``limits.max_header_bytes``, by the fault of its URL or not."""
    if url_bytes > limits.max_header_bytes // 2:
        return RequestError("the URL is too long", status=414, code="url_too_long")
    return RequestError(
        f"the head of the request is longer than {limits.max_header_bytes} bytes",
        status=431,
        code="headers_too_large",
    )


def too_many_headers(limits: HttpLimits) -> RequestError:
    """Of more than ``limits.max_header_count`` headers."""
    return RequestError(
        f"the request has more than {limits.max_header_count} headers",
        status=431,
        code="headers_too_large",
    )


def too_slow(what: str, seconds: float) -> RequestError:
    """Of a head or body that has not come in time."""
    return RequestError(
        f"the {what} of the request took longer than {seconds:g} s to come",
        status=408,
        code="request_timeout",
    )


def too_many_connections() -> RequestError:
    """Of a connection for which there is no descriptor to spare."""
    return RequestError(
        "there are as many connections as fit",
        status=503,
        type="service_unavailable",
        code="too_many_connections",
        retry_after=SOON,
    )


def too_much_at_once() -> RequestError:
    """Of a body that would be one too many in memory."""
    return RequestError(
        "too many long requests are being read at once",
        status=503,
        type="service_unavailable",
        code="too_many_bytes",
        retry_after=SOON,
    )
