"""``POST /v1/chat/completions``."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from farthing.openai_protocol.endpoints import CHAT
from farthing.server.openapi import generating
from farthing.server.routes.generation import Generation
from farthing.server.service import Service


def chat_router(service: Service) -> APIRouter:
    """The route of conversations."""
    router = APIRouter(tags=["generation"])

    @router.post(CHAT, summary="Answer a conversation", **generating("ChatRequest"))
    async def chat_completions() -> Response:
        return Generation(service, CHAT)

    return router
