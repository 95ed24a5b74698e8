"""What leaves a route as an exception, as the error object."""

from __future__ import annotations

from typing import Annotated

import pytest
from fastapi import FastAPI, Query
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from farthing.openai_protocol.errors import RequestError
from farthing.server.http.handlers import install_error_handlers
from support.asgi import Answer, ask


def application() -> FastAPI:
    app = FastAPI(redirect_slashes=False)
    install_error_handlers(app)

    @app.get("/v1/models")
    async def models() -> list[str]:
        return []

    @app.get("/raises/{what}")
    async def raises(what: str) -> None:
        raise {
            "refusal": RequestError("full", status=429, type="rate_limit_error", retry_after=2.5),
            "bug": ZeroDivisionError("boom\nboom"),
            "teapot": HTTPException(418, "a teapot"),
            "left": ClientDisconnect(),
        }[what]

    @app.get("/asks")
    async def asks(count: Annotated[int, Query()]) -> None: ...

    return app


APP = application()


def answer(path: str, method: str = "GET") -> Answer:
    return ask(APP, path, method=method)


@pytest.mark.parametrize(
    "path",
    [
        "/nowhere",
        "/v1/models/../../etc/passwd",
        "/v1/models/",
        "/..%2f",
        "/..",
        "/v1%2fmodels",
        "//v1/models",
        "/" + "é" * 500,
        "/" + "x" * 5000,
        "/a\r\nb",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_an_unknown_path_is_not_found(path: str, method: str) -> None:
    found = answer(path, method)
    assert found.status == 404
    assert found.error["type"] == "not_found_error"
    assert found.error["code"] == "route_not_found"
    assert len(found.body) < 300


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "TRACE", "OPTIONS", "QUERY"])
def test_a_wrong_method_is_told_the_right_one(method: str) -> None:
    found = answer("/v1/models", method)
    assert found.status == 405
    assert found.header("allow") == "GET"
    assert found.error["code"] == "method_not_allowed"
    assert found.error["message"] == f"'/v1/models' takes GET, not {method}"


def test_a_refusal_says_when_to_come_again() -> None:
    found = answer("/raises/refusal")
    assert found.status == 429
    assert found.header("retry-after") == "3"
    assert found.header("retry-after-ms") == "2500"
    assert found.error["type"] == "rate_limit_error"


def test_another_status_is_an_error_object_too() -> None:
    found = answer("/raises/teapot")
    assert found.status == 418
    assert found.error == {
        "message": "a teapot",
        "type": "invalid_request_error",
        "param": None,
        "code": None,
    }


def test_a_parameter_that_the_framework_refuses_is_a_bad_request() -> None:
    found = answer("/asks")
    assert found.status == 400
    assert found.error["param"] == "count"


def test_whoever_left_is_not_an_error_of_ours() -> None:
    assert answer("/raises/left").status == 499


def test_a_bug_is_answered_and_raised_again_to_be_logged() -> None:
    async def caught(scope: Scope, receive: Receive, send: Send) -> None:
        with pytest.raises(ZeroDivisionError):
            await APP(scope, receive, send)

    found = ask(caught, "/raises/bug")
    assert found.status == 500
    assert found.error["type"] == "server_error"
    assert found.error["message"] == "internal error: ZeroDivisionError: boom boom"
