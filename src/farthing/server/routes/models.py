"""``GET /v1/models``: the model, once for each of its names."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from farthing.openai_protocol.served_model import ServedModel
from farthing.server.openapi import add_get, documented
from farthing.server.routes.json_response import json_bytes, json_response
from farthing.server.service import Service


def models_router(service: Service) -> APIRouter:
    """The routes of the list and of one of its entries."""
    router = APIRouter(tags=["models"])

    def card(served: ServedModel, name: str) -> dict[str, Any]:
        return {
            "id": name,
            "object": "model",
            "created": service.created,
            "owned_by": "farthing",
            "root": served.names.names[0],
            "parent": None,
            "max_model_len": served.context_length,
        }

    async def list_models() -> Response:
        served = service.model().served
        cards = [card(served, name) for name in served.names.names]
        return json_response(json_bytes({"object": "list", "data": cards}))

    async def get_model(request: Request) -> Response:
        served = service.model().served
        asked: str = request.path_params["model_id"]
        served.names.checked(asked)
        return json_response(json_bytes(card(served, asked)))

    parameter = {
        "name": "model_id",
        "in": "path",
        "required": True,
        "schema": {"type": "string"},
        "description": "A name of the model; it may have slashes",
    }
    add_get(router, "/v1/models", list_models, "Models", **documented("ModelList", 401, 503))
    add_get(
        router,
        "/v1/models/{model_id:path}",
        get_model,
        "One of the models",
        **documented("Model", 401, 404, 503),
        openapi_extra={"parameters": [parameter]},
    )
    return router
