"""One request of a load, before it is bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from farthing.bench.serving.answer import Backend


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked for. ``input_tokens`` None: nobody has counted; the server will tell."""

    prompt: str
    output_tokens: int  # at most
    input_tokens: int | None = None
    ignore_eos: bool | None = None  # None: as for the whole run
    arrival: float | None = None  # seconds from the beginning, where a trace says so


def request_body(
    asked: Asked,
    *,
    backend: Backend,
    model: str,
    ignore_eos: bool,
    logprobs: int | None,
    extra: Mapping[str, Any],
) -> bytes:
    """The body of a request, with the fields that vLLM's tool sends; ``extra`` goes over them."""
    body: dict[str, Any] = {"model": model}
    if backend == "openai-chat":
        body["messages"] = [{"role": "user", "content": asked.prompt}]
        body["max_completion_tokens"] = asked.output_tokens
        if logprobs is not None:
            body |= {"logprobs": True, "top_logprobs": logprobs}
    else:
        body |= {"prompt": asked.prompt, "repetition_penalty": 1.0}
        body["max_tokens"] = asked.output_tokens
        if logprobs is not None:
            body["logprobs"] = logprobs
    body |= {"stream": True, "stream_options": {"include_usage": True}}
    if asked.ignore_eos if asked.ignore_eos is not None else ignore_eos:
        body["ignore_eos"] = True
    return json.dumps({**body, **extra}, separators=(",", ":")).encode()
