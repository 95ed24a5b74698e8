"""What the parser lets through in the head of a request and a careful server does not."""

from __future__ import annotations

from farthing.openai_protocol.errors import RequestError
from farthing.server.http.limits import HttpLimits
from farthing.server.http.refusals import bad_http, body_too_large

Headers = list[tuple[bytes, bytes]]
"""Names in small letters."""


def body_length(method: str, version: str, headers: Headers, limits: HttpLimits) -> int | None:
    """Bytes of the body, None if it comes in chunks.

    Raises :class:`RequestError` for a body over ``limits`` and where there is more than one reading
    of what a request says. The parser has refused a length that is no number or there twice, a
    length beside chunks, line ends that are not CRLF, folded lines, names with spaces, control
    characters.
    """
    if method == "CONNECT":
        raise RequestError("this is no proxy: there is no CONNECT", status=405)
    if version not in ("1.0", "1.1"):
        raise bad_http("HTTP/1.1 and 1.0 are spoken here, no other version")
    hosts = 0
    length: int | None = 0
    for name, value in headers:
        if name == b"host":
            hosts += 1
        elif name == b"content-length":
            length = int(value)
        elif name == b"transfer-encoding":
            length = None
            if value.lower() != b"chunked" or version == "1.0":
                raise bad_http("the only transfer-encoding is chunked, in HTTP/1.1")
    if hosts > 1 or (hosts == 0 and version == "1.1"):
        raise bad_http("there must be one Host")
    if length is not None and length > limits.max_body_bytes:
        raise body_too_large(limits)
    return length


def put_host(headers: Headers, host: bytes, port: int | None) -> None:
    """Gives ``headers`` the host that the request line names: it is the one that counts."""
    name = b"[" + host + b"]" if b":" in host else host
    headers[:] = [header for header in headers if header[0] != b"host"]
    headers.append((b"host", name if port is None else b"%s:%d" % (name, port)))
