"""What leaves a route as an exception, as the error object of the API."""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from farthing.openai_protocol.errors import RequestError, request_error, shown
from farthing.server.http.cycle import cut_of
from farthing.server.http.errors import error_response

CLIENT_CLOSED_REQUEST = 499
"""For logs: there is nobody left to be told."""


def install_error_handlers(app: FastAPI) -> None:
    """Has every exception of a route answered with an error object, and with nothing else."""
    app.add_exception_handler(HTTPException, _http_exception)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(RequestError, _answered)
    app.add_exception_handler(ClientDisconnect, _client_left)
    app.add_exception_handler(Exception, _answered)  # and it is raised again, to be logged


async def _http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    response = error_response(http_error(request.method, request.url.path, error))
    response.headers.update(error.headers or {})
    return response


def http_error(method: str, path: str, error: HTTPException) -> RequestError:
    """The error object of what the router refuses."""
    if error.status_code == 404:
        return RequestError(
            f"there is no {method} {shown(path)} here",
            status=404,
            type="not_found_error",
            code="route_not_found",
        )
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "other methods")
        return RequestError(
            f"{shown(path)} takes {allowed}, not {method}", status=405, code="method_not_allowed"
        )
    kind = "server_error" if error.status_code >= 500 else "invalid_request_error"
    return RequestError(str(error.detail), status=error.status_code, type=kind)


async def _validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"][1:])
    return error_response(
        RequestError(f"{where or 'request'}: {first['msg']}", param=where or None)
    )


async def _answered(request: Request, error: Exception) -> Response:
    return error_response(request_error(error))


async def _client_left(request: Request, error: Exception) -> Response:
    cut = cut_of(request.scope)
    return Response(status_code=CLIENT_CLOSED_REQUEST) if cut is None else error_response(cut)
