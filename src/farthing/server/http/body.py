"""The body of a request, of a type that is read here and within bounds."""

from __future__ import annotations

from email.message import Message as MimeHeaders

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request

from farthing.openai_protocol.errors import RequestError, shown
from farthing.server.http.cycle import cut_of
from farthing.server.http.limits import HttpLimits
from farthing.server.http.refusals import body_too_large


async def read_body(request: Request, limits: HttpLimits) -> bytes:
    """All of the body of ``request``, JSON by its header and not yet parsed.

    Raises :class:`RequestError`: 415 for another content type or any content encoding, 413 for more
    than ``limits.max_body_bytes``, and what the connection says of a body that it breaks off (408:
    too slow, 400: bad chunks, 503: too much of others' in memory). Raises ``ClientDisconnect`` if
    the client leaves.
    """
    _check_type(request.headers)
    parts: list[bytes] = []
    size = 0
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise cut_of(request.scope) or ClientDisconnect
        part = message.get("body", b"")
        size += len(part)
        if size > limits.max_body_bytes:
            raise body_too_large(limits)
        parts.append(part)
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _check_type(headers: Headers) -> None:
    types = headers.getlist("content-type")
    if len(types) != 1:
        problem = "there is no content-type" if not types else "there are two content-types"
        raise _unsupported(f"{problem}; send application/json")
    mime = MimeHeaders()
    mime["content-type"] = types[0]
    if types[0].partition(";")[0].strip().lower() != "application/json":
        raise _unsupported(f"content-type is {shown(types[0])}; send application/json")
    charset = mime.get_param("charset", "utf-8")
    if not isinstance(charset, str) or charset.strip().lower() not in ("utf-8", "utf8"):
        raise _unsupported("the charset of the request must be utf-8")
    for encoding in headers.getlist("content-encoding"):
        if encoding.strip().lower() not in ("identity", ""):
            raise _unsupported(f"content-encoding is {shown(encoding)}; send the request as it is")


def _unsupported(message: str) -> RequestError:
    return RequestError(message, status=415, code="unsupported_media_type")
