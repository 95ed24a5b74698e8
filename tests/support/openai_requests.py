"""Bodies of requests, parsed as the server would."""

from __future__ import annotations

import json
from typing import Any

from farthing.openai_protocol.chat import ChatRequest
from farthing.openai_protocol.completions import CompletionRequest
from farthing.openai_protocol.endpoints import CHAT, COMPLETIONS, parse_request
from farthing.openai_protocol.json_body import read_object

USER = [{"role": "user", "content": "How many pence?"}]
SCHEMA = {"type": "object", "properties": {"pence": {"type": "integer"}}}
LONG = "Z" * 500


def parsed(url: str, body: dict[str, Any]) -> ChatRequest | CompletionRequest:
    """The request, read from JSON and taken as far as it goes without a model."""
    request = parse_request(url, read_object(json.dumps(body).encode()))
    request.params()
    if isinstance(request, CompletionRequest):
        request.prompts()
    else:
        request.for_template()
    return request


def chat(**fields: Any) -> tuple[str, dict[str, Any]]:
    """Url and body of a question."""
    return CHAT, {"messages": USER, **fields}


def completion(**fields: Any) -> tuple[str, dict[str, Any]]:
    """Url and body of a text to go on with."""
    return COMPLETIONS, {"prompt": "One", **fields}
