"""The application: routes and what is around them, nothing that starts or stops."""

from __future__ import annotations

from fastapi import FastAPI

from farthing.server.http.handlers import install_error_handlers
from farthing.server.openapi import describe
from farthing.server.routes.chat import chat_router
from farthing.server.routes.completions import completions_router
from farthing.server.routes.debug import debug_router
from farthing.server.routes.health import health_router
from farthing.server.routes.info import info_router
from farthing.server.routes.metrics import metrics_router
from farthing.server.routes.models import models_router
from farthing.server.routes.tokenization import tokenization_router
from farthing.server.service import Service


def create_app(service: Service, *, open_paths: frozenset[str] | None = None) -> FastAPI:
    """All endpoints over ``service``; who may come in is another layer's to say.

    ``open_paths``: those that layer asks no key for where it asks for keys, to be described so.
    There are no pages of documentation: they load scripts from elsewhere.
    """
    app = FastAPI(
        title="Farthing",
        version=service.version,
        description="The OpenAI API over a language model on this machine's CPUs.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    install_error_handlers(app)
    for make in (
        chat_router,
        completions_router,
        models_router,
        tokenization_router,
        health_router,
        info_router,
        metrics_router,
    ):
        app.include_router(make(service))
    if service.recent_steps is not None:
        app.include_router(debug_router(service.engine, service.recent_steps))
    describe(app, open_paths)
    return app
