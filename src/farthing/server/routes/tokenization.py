"""``/tokenize``, ``/detokenize`` and ``/tokenizer_info``, in vLLM's shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from farthing.openai_protocol.json_body import read_object
from farthing.openai_protocol.served_model import ServedModel
from farthing.openai_protocol.tokenization import detokenized, tokenized
from farthing.server.client_watch import ClientWatch
from farthing.server.http.body import read_body
from farthing.server.http.errors import error_response
from farthing.server.http.held_body import held_body
from farthing.server.openapi import add_get, documented, taking
from farthing.server.routes.generation import told_error
from farthing.server.routes.json_response import json_bytes, json_response
from farthing.server.service import Service

Answering = Callable[[Mapping[str, Any], ServedModel], dict[str, Any]]


def tokenization_router(service: Service) -> APIRouter:
    """The routes of the model's tokenizer."""
    router = APIRouter(tags=["tokenization"])

    async def answer(request: Request, answering: Answering) -> Response:
        served = service.model().served
        raw = await read_body(request, service.limits)
        async with ClientWatch(request.receive) as client:
            try:
                body = await service.body_work.done(
                    held_body(request.scope),
                    lambda raw: json_bytes(answering(read_object(raw), served)),
                    raw,
                )
            except Exception as error:
                return error_response(told_error(error))
            del raw
            client.release()
            return json_response(body)

    @router.post(
        "/tokenize",
        summary="Tokens of a text or conversation",
        **taking("TokenizeRequest", "Tokens"),
    )
    async def tokenize(request: Request) -> Response:
        return await answer(request, tokenized)

    @router.post("/detokenize", summary="Text of tokens", **taking("DetokenizeRequest", "Text"))
    async def detokenize(request: Request) -> Response:
        return await answer(request, detokenized)

    async def tokenizer_info() -> Response:
        return json_response(json_bytes(service.model().texts.tokenizer_config))

    add_get(
        router,
        "/tokenizer_info",
        tokenizer_info,
        "The tokenizer's configuration and chat template",
        **documented("TokenizerInfo", 401, 503),
    )
    return router
