"""What only tests ask, and only a server that was started for them answers."""

from __future__ import annotations

from dataclasses import asdict

from fastapi import APIRouter
from starlette.responses import Response

from farthing.server.routes.json_response import json_bytes, json_response
from farthing.server.service import Service


def debug_router(service: Service) -> APIRouter:
    """``/debug/invariants``: whether all blocks of the engine are accounted for."""
    router = APIRouter()

    async def invariants() -> Response:
        integrity = await service.engine.check_integrity()
        if integrity is None:
            raise service.life.unavailable()
        return json_response(json_bytes(asdict(integrity)))

    router.add_api_route("/debug/invariants", invariants, methods=["GET"], include_in_schema=False)
    return router
