"""The outermost layer of the application: request ids, hosts, origins, CORS, keys."""

from __future__ import annotations

import re
import uuid

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from farthing.openai_protocol.errors import RequestError, shown
from farthing.server.access.keys import ApiKeys
from farthing.server.access.rules import AccessRules
from farthing.server.http.errors import error_response
from farthing.server.principal import ANYBODY

OPEN_PATHS = frozenset(
    ("/health", "/v1/health", "/livez", "/readyz", "/ping", "/version", "/metrics")
)
"""That need no key: probes and collectors have none (docs/decisions/which-paths-need-a-key.md)."""

METHODS = ("GET", "HEAD", "OPTIONS", "POST")
"""That anything here answers to."""

_SANE_ID = re.compile(r"[A-Za-z0-9._:@/+=-]{1,128}")
_READABLE_HEADERS = ("x-request-id", "retry-after", "retry-after-ms")


def guard(app: ASGIApp, rules: AccessRules) -> ASGIApp:
    """``app`` for those whom ``rules`` let in.

    What comes through has ``scope["state"]["principal"]``, a :class:`Principal`, and
    ``["request_id"]``, the client's ``X-Request-ID`` if it is sane; every response, a refusal too,
    has it as ``x-request-id``.
    """
    inner: ASGIApp = _KeyCheck(app, rules.keys)
    if rules.allowed_origins:
        inner = _Cors(
            inner,
            allow_origins=rules.allowed_origins,
            allow_methods=METHODS if "*" in rules.allowed_methods else rules.allowed_methods,
            allow_headers=rules.allowed_headers,
            allow_credentials=rules.allow_credentials,
            expose_headers=_READABLE_HEADERS,
        )
    return _Door(inner, rules)


class _Door:
    """Names the request; keeps out those who come by a name or from a page that is not allowed."""

    def __init__(self, app: ASGIApp, rules: AccessRules) -> None:
        self._app = app
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
                return
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        request_id = headers.get("x-request-id", "")
        if not _SANE_ID.fullmatch(request_id):
            request_id = uuid.uuid4().hex
        scope.setdefault("state", {}).update(request_id=request_id, principal=ANYBODY)
        named = (b"x-request-id", request_id.encode())

        async def send_named(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), named]}
            await send(message)

        refusal = self._refusal(headers.get("host"), headers.get("origin"))
        if refusal is not None:
            await error_response(refusal)(scope, receive, send_named)
            return
        await self._app(scope, receive, send_named)

    def _refusal(self, host: str | None, origin: str | None) -> RequestError | None:
        # Who sends no Host (HTTP/1.0) is no browser, and the check is about those.
        if host is not None and not self._rules.allows_host(host):
            return _forbidden(
                f"this server is not called {shown(host)}; --allowed-hosts lets it be", "host"
            )
        if origin is not None and not self._rules.allows_origin(origin, host):
            return _forbidden(
                f"pages of {shown(origin)} may not ask; --allowed-origins lets them", "origin"
            )
        return None


class _KeyCheck:
    def __init__(self, app: ASGIApp, keys: ApiKeys) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and len(self._keys) and not _is_open(scope):
            principal = self._keys.principal_of(_presented(scope))
            if principal is None:
                await error_response(_unauthorized())(scope, receive, send)
                return
            scope["state"]["principal"] = principal
        await self._app(scope, receive, send)


class _Cors(CORSMiddleware):
    """Refuses with an error object like everything else here."""

    def preflight_response(self, request_headers: Headers) -> Response:
        response = super().preflight_response(request_headers)
        if response.status_code == 200:
            return response
        refusal = error_response(
            RequestError(bytes(response.body).decode(), status=response.status_code, code="cors")
        )
        for name, value in response.headers.items():
            if name not in ("content-type", "content-length"):
                refusal.headers[name] = value
        return refusal


def _is_open(scope: Scope) -> bool:
    path: str = scope["path"].removeprefix(scope.get("root_path", ""))
    return path in OPEN_PATHS or scope["method"] == "OPTIONS"


def _presented(scope: Scope) -> bytes:
    """The Bearer key of a request; empty, which is nobody's, if there is not exactly one."""
    found = [value for name, value in scope["headers"] if name == b"authorization"]
    if len(found) != 1:
        return b""
    scheme, _, key = found[0].partition(b" ")
    return key.strip() if scheme.lower() == b"bearer" else b""


def _unauthorized() -> RequestError:
    return RequestError(
        "the API key is missing or wrong; send it as Authorization: Bearer KEY",
        status=401,
        type="authentication_error",
        code="invalid_api_key",
    )


def _forbidden(message: str, what: str) -> RequestError:
    return RequestError(message, status=403, type="permission_error", code=f"{what}_not_allowed")
