"""Server-sent events as bytes."""

from __future__ import annotations

from json.encoder import encode_basestring

from farthing.openai_protocol.errors import RequestError
from farthing.server.http.errors import error_bytes

DONE = b"data: [DONE]\n\n"
PING = b": ping\n\n"
"""A comment: clients pass over it, proxies see that somebody is there."""

# Some clients cut a stream into lines where Unicode does; JSON itself escapes the first 32.
_LINE_BREAKS = str.maketrans({"\u0085": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"})


def quoted(text: str) -> bytes:
    """``text`` as a JSON string, in one line whoever reads it."""
    written = encode_basestring(text)
    if not written.isascii():
        written = written.translate(_LINE_BREAKS)
    return written.encode()


def error_event(error: RequestError) -> bytes:
    """The end of a stream that has failed after its beginning."""
    return b"data: " + error_bytes(error) + b"\n\n" + DONE
