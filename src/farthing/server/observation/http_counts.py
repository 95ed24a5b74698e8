"""HTTP requests as they are answered: counted, timed, and a line of the access log for each."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Awaitable, Collection
from copy import deepcopy

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from farthing.engine.metrics import Histogram
from farthing.server.observation.record import CLIENT_LEFT
from farthing.server.observation.request_context import enter_request

DURATION_BOUNDS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
    *(30.0, 60.0, 120.0, 300.0, 600.0, 1800.0),
)
"""Upper bounds of the buckets of seconds from a request's headers to the end of its answer."""

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
PROBES = frozenset({"/health", "/v1/health", "/livez", "/readyz", "/ping", "/metrics", "/load"})
"""Asked again and again by machines: logged at level debug only."""

UNKNOWN = "unmatched"
"""The path of all requests to what is not served."""

access_logger = logging.getLogger("farthing.access")


class HttpCounts:
    """Counts by labels of which there are few, whatever strangers send."""

    def __init__(self) -> None:
        self.in_progress = 0
        self.requests: Counter[tuple[str, str, int]] = Counter()  # by method, path and status
        self.seconds: dict[str, Histogram] = {}  # by path

    def add(self, method: str, path: str, status: int, seconds: float) -> None:
        """Counts an answer."""
        self.requests[method, path, status] += 1
        histogram = self.seconds.get(path)
        if histogram is None:
            histogram = self.seconds[path] = Histogram(DURATION_BOUNDS)
        histogram.observe(seconds)

    def copied(self) -> HttpCounts:
        """The counts as they are now."""
        return deepcopy(self)


class ObservedApp:
    """An ASGI application whose answers are counted and logged. Stands around all else.

    ``paths``: those that are served and have no parameters, so that what is refused before it is
    routed is known by its path too. The id and the key's name are what the application leaves in
    ``scope["state"]``.
    """

    def __init__(
        self, app: ASGIApp, counts: HttpCounts, *, paths: Collection[str], log: bool = True
    ) -> None:
        self._app = app
        self._counts = counts
        self._paths = frozenset(paths)
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, size = 0, 0

        def observed(message: Message) -> Awaitable[None]:  # no coroutine more for each chunk
            nonlocal status, size
            if message["type"] == "http.response.body":
                size += len(message.get("body", b""))
            elif message["type"] == "http.response.start":
                status = message["status"]
            return send(message)

        enter_request(scope.setdefault("state", {}))
        started = time.monotonic()
        self._counts.in_progress += 1
        try:
            await self._app(scope, receive, observed)
        except BaseException:
            status = status or 500  # by who runs us
            raise
        finally:
            self._counts.in_progress -= 1
            self._ended(scope, status or CLIENT_LEFT, size, time.monotonic() - started)

    def _ended(self, scope: Scope, status: int, size: int, seconds: float) -> None:
        path = self._template(scope)
        method = scope["method"] if scope["method"] in METHODS else "other"
        self._counts.add(method, path, status, seconds)
        level = logging.DEBUG if path in PROBES else logging.INFO
        if not self._log or not access_logger.isEnabledFor(level):
            return
        client, principal = scope.get("client"), scope["state"].get("principal")
        fields = {
            "method": method,
            "path": path,
            "status": status,
            "seconds": round(seconds, 6),
            "bytes": size,
            "client": client[0] if client else "",
        }
        if principal is not None and principal.name:
            fields["key_name"] = principal.name
        access_logger.log(level, "http", extra={"fields": fields})

    def _template(self, scope: Scope) -> str:
        """The path of the route, never what a stranger wrote."""
        if scope["path"] in self._paths:
            return str(scope["path"])
        path = getattr(scope.get("route"), "path", None)
        return path if isinstance(path, str) else UNKNOWN
