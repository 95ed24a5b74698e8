"""``POST /v1/completions``."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from farthing.openai_protocol.endpoints import COMPLETIONS
from farthing.server.openapi import generating
from farthing.server.routes.generation import Generation
from farthing.server.service import Service


def completions_router(service: Service) -> APIRouter:
    """The route of texts to go on with."""
    router = APIRouter(tags=["generation"])

    @router.post(COMPLETIONS, summary="Go on with texts", **generating("CompletionRequest"))
    async def completions() -> Response:
        return Generation(service, COMPLETIONS)

    return router
