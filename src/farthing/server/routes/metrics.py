"""``GET /metrics``, for Prometheus."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from farthing.server.openapi import add_get, documented
from farthing.server.service import Service


def metrics_router(service: Service) -> APIRouter:
    """The route of the page."""
    router = APIRouter(tags=["server"])

    async def metrics(request: Request) -> Response:
        page, content_type = await service.metrics_page.render(request.headers.get("accept", ""))
        return Response(page, headers={"content-type": content_type})

    add_get(
        router,
        "/metrics",
        metrics,
        "Metrics of server and engine",
        **documented("MetricsPage", media="text/plain"),
    )
    return router
