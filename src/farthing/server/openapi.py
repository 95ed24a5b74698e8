"""The description of the API at ``/openapi.json``: bodies, parameters and every response."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema
from starlette.responses import Response

from farthing.openai_protocol.chat import ChatRequest
from farthing.openai_protocol.completions import CompletionRequest
from farthing.openai_protocol.tokenization import DetokenizeRequest, TokenizeRequest
from farthing.server.openapi_schemas import RESPONSE_SCHEMAS

_REQUESTS = (ChatRequest, CompletionRequest, TokenizeRequest, DetokenizeRequest)
_REF = "#/components/schemas/{model}"
_WAIT = {
    "Retry-After": {
        "description": "Seconds after which to come again",
        "schema": {"type": "integer", "minimum": 1},
    },
    "Retry-After-Ms": {
        "description": "The same in milliseconds",
        "schema": {"type": "integer", "minimum": 1},
    },
}
# Of each event: OpenAPI has no word of its own for that before 3.2, and readers take it so.
_EVENT = {
    "type": "object",
    "properties": {"data": {"type": "string", "description": "A chunk as JSON, or [DONE]"}},
    "required": ["data"],
}
_MEANINGS = {
    400: "The request cannot be served as it is",
    401: "The API key is missing or wrong",
    403: "The server may not be called by this name, or from this page",
    404: "There is no such model",
    408: "The body came too slowly",
    413: "The body is too long",
    415: "The body is not JSON",
    429: "No more requests may wait",
    500: "The server has failed",
    503: "The server is loading, is about to stop, or does not answer",
    504: "The time of the request is over",
}


def documented(schema: str, *statuses: int, media: str = "application/json") -> dict[str, Any]:
    """Arguments of a route that answers with ``schema``, or with an error of one of ``statuses``.

    ``schema`` is a name among :data:`RESPONSE_SCHEMAS`.
    """
    content = {"schema": {"$ref": _REF.format(model=schema)}}
    responses: dict[int | str, dict[str, Any]] = {
        200: {"description": "The answer", "content": {media: content}}
    }
    for status in sorted({403, 500, *statuses}):
        responses[status] = _error(status)
    return {"response_class": Response, "response_model": None, "responses": responses}


def taking(request: str, schema: str, *statuses: int) -> dict[str, Any]:
    """As :func:`documented`, of a route that takes a body with the schema ``request``."""
    body = {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": _REF.format(model=request)}}},
    }
    every = (400, 401, 404, 408, 413, 415, 503, *statuses)
    return {**documented(schema, *every), "openapi_extra": {"requestBody": body}}


def generating(request: str) -> dict[str, Any]:
    """As :func:`taking`, of a route that generates, whole or as a stream."""
    answer = "ChatCompletion" if request == "ChatRequest" else "TextCompletion"
    arguments = taking(request, answer, 429, 504)
    arguments["responses"][200]["content"]["text/event-stream"] = {"schema": _EVENT}
    return arguments


def add_get(
    router: APIRouter, path: str, endpoint: Callable[..., Any], summary: str, **arguments: Any
) -> None:
    """A route for GET, which is described, and for HEAD."""
    router.add_api_route(path, endpoint, methods=["GET"], summary=summary, **arguments)
    router.add_api_route(
        path,
        endpoint,
        methods=["HEAD"],
        include_in_schema=False,
        response_class=Response,
        response_model=None,
    )


def describe(app: FastAPI, open_paths: frozenset[str] | None) -> None:
    """Has ``app`` described with the schemas of all bodies.

    ``open_paths`` are those that need no key where others need one; None: none needs one.
    """

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            found = get_openapi(
                title=app.title,
                version=app.version,
                description=app.description,
                routes=app.routes,
            )
            _, definitions = models_json_schema(
                [(model, "validation") for model in _REQUESTS], ref_template=_REF
            )
            components = found.setdefault("components", {})
            components["schemas"] = {
                **components.get("schemas", {}),
                **definitions["$defs"],
                **RESPONSE_SCHEMAS,
            }
            if open_paths is not None:
                components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
                _secure(found["paths"], open_paths)
            app.openapi_schema = found
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # as FastAPI's own documentation has it


def _secure(paths: Mapping[str, Any], open_paths: frozenset[str]) -> None:
    for path, operations in paths.items():
        if path not in open_paths:
            for operation in operations.values():
                operation["security"] = [{"key": []}]
                operation["responses"].setdefault("401", _error(401))


def _error(status: int) -> dict[str, Any]:
    response = {
        "description": _MEANINGS[status],
        "content": {"application/json": {"schema": {"$ref": _REF.format(model="Error")}}},
    }
    return {**response, "headers": _WAIT} if status in (429, 503) else response
