"""What this server is, and how much it has to do."""

from __future__ import annotations

from dataclasses import asdict

from fastapi import APIRouter
from starlette.responses import Response

from farthing.program.numerics import NUMERICS_VERSION
from farthing.server.openapi import add_get, documented
from farthing.server.routes.json_response import json_bytes, json_response
from farthing.server.service import Service


def info_router(service: Service) -> APIRouter:
    """``/version``, ``/server_info`` and ``/load``."""
    router = APIRouter(tags=["server"])

    async def version() -> Response:
        return json_response(json_bytes({"version": service.version}))

    async def load() -> Response:
        return json_response(json_bytes({"server_load": service.observation.load}))

    async def server_info() -> Response:
        """What has to be equal for equal bits is under ``numerics``."""
        model = service.model()
        engine = asdict(model.info)
        numerics = {
            "version": NUMERICS_VERSION,
            "fingerprint": engine.pop("fingerprint"),
            "kv_cache_dtype": engine.pop("kv_cache_dtype"),
            "system_fingerprint": model.served.system_fingerprint,
        }
        names = model.served.names.names
        found = {
            "version": service.version,
            "model": {"names": names, "max_model_len": engine.pop("max_model_len")},
            "numerics": numerics,
            "engine": engine,
            "settings": dict(service.settings),
        }
        return json_response(json_bytes(found))

    add_get(router, "/version", version, "Version of Farthing", **documented("Version"))
    add_get(router, "/load", load, "Requests in progress", **documented("Load", 401))
    add_get(
        router,
        "/server_info",
        server_info,
        "Model, numerics, engine and settings",
        **documented("ServerInfo", 401, 503),
    )
    return router
