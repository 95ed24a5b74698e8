"""What only tests and measurements ask, of a server that was started for them."""

from __future__ import annotations

from dataclasses import asdict

from fastapi import APIRouter
from starlette.responses import Response

from farthing.openai_protocol.errors import RequestError
from farthing.server.engine_client import EngineClient
from farthing.server.observation.recent_steps import RecentSteps
from farthing.server.routes.json_response import json_bytes, json_response


def debug_router(engine: EngineClient, recent: RecentSteps) -> APIRouter:
    """``/debug/invariants``: whether all blocks are accounted for. ``/debug/steps``: the last ones.

    Steps are lists of start and end, seconds of the monotonic clock, decode and prefill rows.
    """
    router = APIRouter(prefix="/debug")

    async def invariants() -> Response:
        integrity = await engine.check_integrity()
        if integrity is None:
            raise RequestError("the engine does not answer", status=503, type="service_unavailable")
        return json_response(json_bytes(asdict(integrity)))

    async def steps() -> Response:
        return json_response(json_bytes({"steps": list(recent.steps)}))

    for path, answer in (("/invariants", invariants), ("/steps", steps)):
        router.add_api_route(path, answer, methods=["GET"], include_in_schema=False)
    return router
