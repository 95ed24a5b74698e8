"""``POST /tokenize`` and ``/detokenize``, in vLLM's shapes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from farthing.openai_protocol.chat import ChatRequest
from farthing.openai_protocol.endpoints import chat_ids
from farthing.openai_protocol.errors import RequestError
from farthing.openai_protocol.messages import ChatMessage
from farthing.openai_protocol.sampling_fields import TokenIds
from farthing.openai_protocol.served_model import ServedModel
from farthing.openai_protocol.validation import FAIL_FAST, Strict, parse


class TokenizeRequest(Strict):
    """A text, or a conversation, to be told the tokens of."""

    model_config = ConfigDict(extra="allow")

    model: str | None = None
    prompt: str | None = None
    messages: Annotated[list[ChatMessage], FAIL_FAST, Field(min_length=1)] | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    documents: list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None


class DetokenizeRequest(Strict):
    """Tokens to be told the text of."""

    model_config = ConfigDict(extra="allow")

    model: str | None = None
    tokens: TokenIds


def tokenized(body: Mapping[str, Any], served: ServedModel) -> dict[str, Any]:
    """The response to a body of ``/tokenize``. Raises as :func:`~.endpoints.job_of`."""
    request = parse(TokenizeRequest, body)
    served.names.checked(request.model)
    ids = _ids(request, served)
    found: dict[str, Any] = {
        "count": len(ids),
        "max_model_len": served.context_length,
        "tokens": ids,
    }
    if request.return_token_strs:
        found["token_strs"] = [served.encoder.tokenizer.id_to_token(token) or "" for token in ids]
    return found


def detokenized(body: Mapping[str, Any], served: ServedModel) -> dict[str, Any]:
    """The response to a body of ``/detokenize``. Raises as :func:`~.endpoints.job_of`."""
    request = parse(DetokenizeRequest, body)
    served.names.checked(request.model)
    ids = served.encoder.checked(request.tokens, "tokens")
    return {"prompt": served.encoder.tokenizer.decode(ids, skip_special=False)}


def _ids(request: TokenizeRequest, served: ServedModel) -> list[int]:
    if (request.prompt is None) == (request.messages is None):
        raise RequestError("prompt: exactly one of prompt and messages is needed", param="prompt")
    extra = request.model_extra or {}
    if extra.get("chat_template") is not None:
        raise RequestError("chat_template: this is not served here", param="chat_template")
    if request.prompt is not None:
        special = request.add_special_tokens is not False
        return served.encoder.encode(request.prompt, add_special_tokens=special)
    if request.add_special_tokens:
        raise RequestError(
            "add_special_tokens: the chat template of a conversation writes those that it has",
            param="add_special_tokens",
        )
    assert request.messages is not None
    chat = ChatRequest(
        messages=request.messages,
        add_generation_prompt=request.add_generation_prompt,
        continue_final_message=request.continue_final_message,
        chat_template_kwargs=request.chat_template_kwargs,
        documents=request.documents,
    )
    return chat_ids(chat, served.encoder, tools=request.tools)
