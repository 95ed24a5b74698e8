"""How much of HTTP one client may have."""

from __future__ import annotations

from dataclasses import dataclass, fields

from farthing.errors import InvalidParameterError
from farthing.openai_protocol.json_body import MAX_BODY


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Bounds of requests and connections; times are in seconds.

    Raises :class:`InvalidParameterError` for a bound that nothing could keep.
    """

    max_body_bytes: int = MAX_BODY  # of one request, as sent: nothing is decompressed
    max_header_bytes: int = 64 << 10  # request line included
    max_header_count: int = 100
    header_timeout: float = 10.0  # from its first byte, or from the connection, to its last
    body_timeout: float = 30.0
    keep_alive_timeout: float = 75.0  # between requests: more than the 60 s of common proxies
    write_timeout: float = 30.0  # within which a client takes 16 KiB of what waits to be sent
    linger_timeout: float = 5.0  # that a refused client is read from, so that it reads the refusal
    max_bodies_bytes: int = 256 << 20  # of all requests, until their prompts wait in the queue
    max_connections: int | None = None  # None: what the limit of file descriptors allows

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and not value > 0:
                raise InvalidParameterError(f"{field.name}={value}: must be more than 0")
