"""The description of the API holds for what is answered, every status and every body of it."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from farthing.server.access.guard import OPEN_PATHS
from farthing.server.app import create_app
from support.event_streams import events_of
from support.served import CHAT, COMPLETIONS, Served

USER = [{"role": "user", "content": "What is a farthing?"}]
FIELDS = {"max_tokens": 4, "temperature": 1.0, "seed": 1}
RICH = {**FIELDS, "n": 2, "prompt_logprobs": 1, "return_token_ids": True}

# Method, path, body: answered or refused in every way there is.
ASKED: list[tuple[str, str, Any]] = [
    *(("GET", path, None) for path in ("/livez", "/health", "/v1/health", "/ping", "/readyz")),
    *(("GET", path, None) for path in ("/version", "/load", "/server_info", "/tokenizer_info")),
    ("GET", "/v1/models", None),
    ("GET", "/v1/models/tiny", None),
    ("GET", "/v1/models/other", None),
    ("POST", CHAT, {"messages": USER, **FIELDS}),
    ("POST", CHAT, {"messages": USER, "logprobs": True, "top_logprobs": 2, **RICH}),
    ("POST", CHAT, {"messages": USER, "model": "other"}),
    ("POST", CHAT, {"messages": []}),
    ("POST", CHAT, b"no JSON"),
    ("POST", CHAT, {"messages": [{"role": "user", "content": "x" * (8 << 20)}]}),
    ("POST", COMPLETIONS, {"prompt": "a", "stop": ["e"], **FIELDS}),
    ("POST", COMPLETIONS, {"prompt": [[5], [6, 7]], "logprobs": 2, "echo": True, **RICH}),
    ("POST", COMPLETIONS, {"prompt": "a", "echo": True, "max_tokens": 0}),
    ("POST", COMPLETIONS, {"prompt": "a", "guided_regex": "a{3}b", "bad_words": ["b"]}),
    ("POST", "/tokenize", {"prompt": "a", "return_token_strs": True}),
    ("POST", "/tokenize", {"messages": USER}),
    ("POST", "/tokenize", {}),
    ("POST", "/detokenize", {"tokens": [5, 6]}),
    ("POST", "/detokenize", {"tokens": [-1]}),
]


@pytest.fixture(scope="module")
def described(shared_server: Served) -> dict[str, Any]:
    found: dict[str, Any] = shared_server.client.get("/openapi.json").json()
    return found


def validate(described: dict[str, Any], schema: dict[str, Any], value: Any) -> None:
    jsonschema.validate(value, {**schema, "components": described["components"]})


def operation(described: dict[str, Any], method: str, path: str) -> dict[str, Any]:
    if path.startswith("/v1/models/"):
        path = "/v1/models/{model_id}"
    found: dict[str, Any] = described["paths"][path][method.lower()]
    return found


@pytest.mark.parametrize("asked", ASKED, ids=lambda a: f"{a[0]} {a[1]}")
def test_what_is_answered_is_described(
    served: Served, described: dict[str, Any], asked: tuple[str, str, Any]
) -> None:
    method, path, body = asked
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"content-type": "application/json"}
    response = served.client.request(
        method, path, **({} if body is None else {"content": content, "headers": headers})
    )
    responses = operation(described, method, path)["responses"]
    kinds = responses[str(response.status_code)]["content"]
    validate(described, kinds["application/json"]["schema"], response.json())


def test_bodies_that_are_answered_are_described(served: Served, described: dict[str, Any]) -> None:
    answered = 0
    for method, path, body in ASKED:
        if method == "POST" and isinstance(body, dict):
            response = served.post(path, body)
            taken = operation(described, method, path)["requestBody"]["content"]
            if response.status_code == 200:
                validate(described, taken["application/json"]["schema"], body)
                answered += 1
    assert answered >= 8


def test_bodies_of_wrong_types_are_not(described: dict[str, Any]) -> None:
    for path, body in (
        (CHAT, {"messages": USER, "n": "two"}),
        (CHAT, {"messages": [{"role": "pirate", "content": "a"}]}),
        (CHAT, {"messages": USER, "temperature": 3}),
        (COMPLETIONS, {"prompt": 7}),
        (COMPLETIONS, {}),
        ("/detokenize", {"tokens": "a"}),
    ):
        taken = operation(described, "POST", path)["requestBody"]["content"]
        with pytest.raises(jsonschema.ValidationError):
            validate(described, taken["application/json"]["schema"], body)


def test_streams_and_pages_are_described(served: Served, described: dict[str, Any]) -> None:
    for path, body in ((CHAT, {"messages": USER}), (COMPLETIONS, {"prompt": "a"})):
        assert events_of(served.stream(path, {**body, **FIELDS}))
        kinds = operation(described, "POST", path)["responses"]["200"]["content"]
        assert set(kinds) == {"application/json", "text/event-stream"}
    page = operation(described, "GET", "/metrics")["responses"]["200"]["content"]
    assert list(page) == ["text/plain"]


def test_every_reference_leads_somewhere(described: dict[str, Any]) -> None:
    def references(value: Any) -> list[str]:
        if isinstance(value, list):
            return [found for each in value for found in references(each)]
        if not isinstance(value, dict):
            return []
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + references(list(value.values()))

    found = set(references(described))
    assert len(found) > 20
    for reference in found:
        place: Any = described
        for step in reference.removeprefix("#/").split("/"):
            place = place[step]
    ids = [o["operationId"] for path in described["paths"].values() for o in path.values()]
    assert len(ids) == len(set(ids))


def test_keys_are_described_where_they_are_asked_for(
    served: Served, described: dict[str, Any]
) -> None:
    assert "securitySchemes" not in described["components"]
    keyed = create_app(served.service, open_paths=OPEN_PATHS).openapi()
    assert keyed["components"]["securitySchemes"] == {"key": {"type": "http", "scheme": "bearer"}}
    for path, operations in keyed["paths"].items():
        for found in operations.values():
            assert ("security" in found) == (path not in OPEN_PATHS)
            assert "401" in found["responses"] or path in OPEN_PATHS
