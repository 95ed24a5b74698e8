"""Schemathesis over what the server says of itself: no 5xx, and no answer but those described."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from support.server_process import ServerProcess, serving

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
OPERATIONS = [
    *(("POST", path) for path in ("/v1/chat/completions", "/v1/completions")),
    *(("POST", path) for path in ("/tokenize", "/detokenize")),
    *(("GET", path) for path in ("/v1/models", "/v1/models/{model_id}", "/tokenizer_info")),
    *(("GET", path) for path in ("/health", "/v1/health", "/ping", "/readyz", "/livez")),
    *(("GET", path) for path in ("/version", "/load", "/server_info", "/metrics")),
]


@pytest.fixture(scope="module")
def described(life_model: Path) -> Iterator[ServerProcess]:
    """A server whose answers are short, whatever is asked for."""
    with serving(life_model, "--max-model-len", "64") as server:
        yield server


def explore(
    server: ServerProcess, method: str, path: str, examples: int, *, repeatable: bool
) -> None:
    """Has requests made up, right and wrong ones, and checks every answer."""
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    asked = 0

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=repeatable,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=schema[path][method].as_strategy())
    def answered_as_described(case: schemathesis.Case) -> None:
        nonlocal asked
        asked += 1
        case.call_and_validate(base_url=server.url, checks=CHECKS, timeout=60)

    answered_as_described()
    assert asked > 0
    server.wait_idle()
    assert server.status("/health") == 200
    assert "Traceback" not in server.log()


def test_all_that_is_served_is_tried(described: ServerProcess) -> None:
    paths = described.client.get("/openapi.json").json()["paths"]
    assert {(method.upper(), path) for path in paths for method in paths[path]} == {*OPERATIONS}


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_every_answer_is_as_described(described: ServerProcess, method: str, path: str) -> None:
    explore(described, method, path, 60 if method == "POST" else 5, repeatable=True)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "path"), [each for each in OPERATIONS if each[0] == "POST"])
def test_every_answer_of_many_is_as_described(
    described: ServerProcess, method: str, path: str
) -> None:
    explore(described, method, path, 1500, repeatable=False)
