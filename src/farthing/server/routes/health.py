"""Whether the server is alive, and whether it takes requests."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from farthing.server.openapi import add_get, documented
from farthing.server.routes.json_response import json_response
from farthing.server.service import Service

_OK = b'{"status":"ok"}'


def health_router(service: Service) -> APIRouter:
    """``/livez`` is about this process alone; the others fail while nothing would be answered."""
    router = APIRouter(tags=["health"])

    async def live() -> Response:
        return json_response(_OK)

    async def ready() -> Response:
        service.refuse_unless_healthy()
        return json_response(_OK)

    add_get(router, "/livez", live, "The process is alive", **documented("Status"))
    for path in ("/health", "/v1/health", "/ping", "/readyz"):
        add_get(router, path, ready, "Requests are answered", **documented("Status", 503))
    return router
