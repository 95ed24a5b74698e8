"""The two endpoints that generate: from a body to prompts, from results to a body."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from farthing.openai_protocol.chat import ChatRequest
from farthing.openai_protocol.completions import CompletionRequest
from farthing.openai_protocol.errors import RequestError
from farthing.openai_protocol.names import ModelNames
from farthing.openai_protocol.responses import chat_response, completion_response
from farthing.sampling.params import SamplingParams

if TYPE_CHECKING:
    from farthing.engine.outputs import RequestOutput
    from farthing.llm import LLM

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"


@dataclass(frozen=True, slots=True)
class Job:
    """A request ready for the engine: its prompts in token ids, and what is asked of each."""

    request: ChatRequest | CompletionRequest
    model: str  # the name to answer with
    params: SamplingParams
    prompts: tuple[list[int], ...]
    texts: tuple[str | list[int], ...] = ()  # a completion's prompts as they were given

    def prompt(self, index: int) -> dict[str, Any]:
        """One of its prompts as :class:`LLM` takes it, with how the body wants it served."""
        request = self.request
        served = {
            "user": request.user,
            "priority": request.priority,
            "cache_salt": request.cache_salt,
        }
        given = {name: value for name, value in served.items() if value is not None}
        return {"prompt_token_ids": self.prompts[index], **given}

    def response(self, outputs: Sequence[RequestOutput], llm: LLM) -> dict[str, Any]:
        """The body of the response, given the result of each prompt. Raises RequestError."""
        if isinstance(self.request, ChatRequest):
            return chat_response(
                self.request,
                outputs[0],
                response_id=f"chatcmpl-{secrets.token_hex(16)}",
                created=int(time.time()),
                model=self.model,
                texts=llm.tokenizer,
            )
        return completion_response(
            self.request,
            self.texts,
            outputs,
            response_id=f"cmpl-{secrets.token_hex(16)}",
            created=int(time.time()),
            model=self.model,
            texts=llm.tokenizer,
        )


def parse_request(url: str, body: Mapping[str, Any]) -> ChatRequest | CompletionRequest:
    """The request of a body sent to ``url``. Raises :class:`RequestError`."""
    if url == CHAT:
        return ChatRequest.from_body(body)
    if url == COMPLETIONS:
        return CompletionRequest.from_body(body)
    raise RequestError(
        f"nothing is served at this url; {CHAT} and {COMPLETIONS} are",
        status=404,
        type="not_found_error",
        param="url",
        code="url_not_found",
    )


def job_of(request: ChatRequest | CompletionRequest, llm: LLM, names: ModelNames) -> Job:
    """Checks a request against the model and encodes it.

    Raises :class:`RequestError` or what :func:`~farthing.openai_protocol.errors.request_error`
    makes one of.
    """
    model = names.checked(request.model)
    params = request.params()
    if isinstance(request, ChatRequest):
        return Job(request, model, params, (_fitting(_chat_ids(request, llm), llm, "messages"),))
    texts = request.prompts()
    ids = [_fitting(_completion_ids(request, text, llm), llm, "prompt") for text in texts]
    return Job(request, model, params, tuple(ids), tuple(texts))


def _chat_ids(request: ChatRequest, llm: LLM) -> list[int]:
    arguments = request.for_template()
    if "developer" not in llm.chat_template.source:  # OpenAI's newer name for the same role
        for message in arguments["messages"]:
            if message["role"] == "developer":
                message["role"] = "system"
    return llm.encode_chat(**arguments)


def _completion_ids(request: CompletionRequest, prompt: str | list[int], llm: LLM) -> list[int]:
    if not isinstance(prompt, str):
        return prompt
    special = request.add_special_tokens is not False
    return llm.tokenizer.encode(prompt, add_special_tokens=special, allow_control=True)


def _fitting(ids: list[int], llm: LLM, param: str) -> list[int]:
    if len(ids) < llm.context_length:
        return ids
    raise RequestError(  # clients know a full context by this sentence or by the code
        f"This model's maximum context length is {llm.context_length} tokens. However, your prompt "
        f"contains {len(ids)} input tokens, and at least one is to be generated.",
        param=param,
        code="context_length_exceeded",
    )
