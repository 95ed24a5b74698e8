"""A client of HTTP/1.1 that is light enough to share its cores with the server.

It does what a load generator needs and no more: it writes a request that is ready as bytes, and
notes when pieces of the response came. General clients (httpx, aiohttp) make objects of every piece
and take several times the CPU for it; on a machine that also serves, that is time the server lacks
and shows as latency it does not have.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from farthing.bench.serving.exchange import Exchange
from farthing.bench.serving.http_connection import HttpConnection
from farthing.errors import InvalidParameterError

CONNECT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where a server is, and the part of its paths that all have in common."""

    host: str
    port: int
    secure: bool
    prefix: str  # of paths, without a slash at its end

    @classmethod
    def from_url(cls, url: str) -> ServerAddress:
        """Of ``http://host:port/prefix``; ``/v1`` at its end is left to the paths.

        Raises :class:`InvalidParameterError`.
        """
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise InvalidParameterError(f"--base-url {url!r}: {error}") from None
        if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
            raise InvalidParameterError(
                f"--base-url {url!r}: must be like http://127.0.0.1:8000 or https://host/prefix"
            )
        if parts.username is not None or not url.isprintable() or " " in url:
            raise InvalidParameterError(
                f"--base-url {url!r}: may have no user, password or spaces; give a key as --api-key"
            )
        secure = parts.scheme == "https"
        prefix = parts.path.rstrip("/").removesuffix("/v1")
        return cls(host, port or (443 if secure else 80), secure, prefix)

    @property
    def authority(self) -> str:
        """The value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = 443 if self.secure else 80
        return host if self.port == usual else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The address as one writes it."""
        return f"http{'s' if self.secure else ''}://{self.authority}{self.prefix}"


class HttpClient:
    """Connections to one server, kept for the next exchange.

    ``headers`` go with every request. ``verify``: whether the certificate of an https server must
    be right. Raises :class:`InvalidParameterError` for a header that cannot be sent.
    """

    def __init__(
        self, address: ServerAddress, headers: Mapping[str, str], *, verify: bool = True
    ) -> None:
        self.address = address
        fixed = {"Host": address.authority, "Accept": "*/*", "User-Agent": "farthing-bench"}
        self._head = "".join([_line(*item) for item in (fixed | dict(headers)).items()])
        self._tls = _tls(verify) if address.secure else None
        self._idle: list[HttpConnection] = []
        self.connections = 0  # made so far

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """A request as bytes, to be sent with :meth:`send` as often as one likes."""
        lines = "".join([_line(*item) for item in (headers or {}).items()])
        if body is not None:
            lines += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        first = f"{method} {self.address.prefix}{path} HTTP/1.1\r\n"
        return f"{first}{self._head}{lines}\r\n".encode("latin-1") + (body or b"")

    async def send(self, request: bytes, timeout: float) -> Exchange:
        """Sends ``request`` and waits at most ``timeout`` seconds for all of its response.

        Whatever goes wrong on the way is told in ``Exchange.error``; only cancelling raises.
        """
        exchange = Exchange(time.perf_counter())
        try:
            async with asyncio.timeout(timeout):
                await self._converse(request, exchange)
        except TimeoutError:
            exchange.error = f"the response was not whole after {timeout:g} s"
        except OSError as error:  # no connection; those of TLS are such too
            exchange.error = f"{self.address.url}: {error.strerror or error}"
        if exchange.ended is None:
            exchange.ended = time.perf_counter()
        return exchange

    async def _converse(self, request: bytes, exchange: Exchange) -> None:
        while True:
            connection = self._take()
            kept = connection is not None
            if connection is None:
                connection = await self._connect()
            try:
                await connection.converse(request, exchange)
            except BaseException:
                connection.close()
                raise
            # A server may close a connection that idles just when it is used: that is no answer.
            if kept and exchange.error is not None and exchange.headers_at is None:
                exchange.error = exchange.ended = None
                exchange.headers.clear()
                continue
            if connection.reusable:
                self._idle.append(connection)
            else:
                connection.close()
            return

    def _take(self) -> HttpConnection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.reusable:
                return connection
        return None

    async def _connect(self) -> HttpConnection:
        loop = asyncio.get_running_loop()
        self.connections += 1
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                _, connection = await loop.create_connection(
                    HttpConnection, self.address.host, self.address.port, ssl=self._tls
                )
        except TimeoutError:
            raise ConnectionError(f"no connection after {CONNECT_SECONDS:g} s") from None
        return connection

    async def close(self) -> None:
        """Ends the connections that are kept."""
        for connection in self._idle:
            connection.close()
        self._idle.clear()
        await asyncio.sleep(0)  # for the transports to be told


def _line(name: str, value: str) -> str:
    text = f"{name}: {value}"
    if not text.isascii() or not text.isprintable() or not name or set(name) & set(' :()<>@,;"/'):
        raise InvalidParameterError(f"header {name!r}: it or its value has what no header may have")
    return text + "\r\n"


def _tls(verify: bool) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
