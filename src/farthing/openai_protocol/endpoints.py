"""The two endpoints that generate: from a body to prompts, from results to a body."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from farthing.errors import TooManyTokensError
from farthing.openai_protocol.chat import ChatRequest
from farthing.openai_protocol.completions import CompletionRequest
from farthing.openai_protocol.errors import RequestError
from farthing.openai_protocol.responses import chat_response, completion_response
from farthing.openai_protocol.served_model import ServedModel
from farthing.sampling.params import SamplingParams

if TYPE_CHECKING:
    from farthing.engine.outputs import RequestOutput
    from farthing.tokenization.prompt_encoder import PromptEncoder

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"


@dataclass(frozen=True, slots=True)
class Job:
    """A request ready for the engine: its prompts in token ids, and what is asked of each."""

    request: ChatRequest | CompletionRequest
    served: ServedModel
    model: str  # the name to answer with
    params: SamplingParams
    prompts: tuple[list[int], ...]
    texts: tuple[str | list[int], ...] = ()  # a completion's prompts as they were given
    token: str = field(default_factory=lambda: secrets.token_hex(16))  # of the answer's id
    created: int = field(default_factory=lambda: int(time.time()))  # seconds since 1970

    @property
    def response_id(self) -> str:
        """The id of the answer."""
        kind = "chatcmpl" if isinstance(self.request, ChatRequest) else "cmpl"
        return f"{kind}-{self.token}"

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

    def response(self, outputs: Sequence[RequestOutput]) -> dict[str, Any]:
        """The body of the response, given the result of each prompt. Raises RequestError."""
        if isinstance(self.request, ChatRequest):
            return chat_response(
                self.request,
                outputs[0],
                response_id=self.response_id,
                created=self.created,
                model=self.model,
                texts=self.served.encoder.tokenizer,
                system_fingerprint=self.served.system_fingerprint,
                timeout=self.served.request_timeout,
            )
        return completion_response(
            self.request,
            self.texts,
            outputs,
            response_id=self.response_id,
            created=self.created,
            model=self.model,
            texts=self.served.encoder.tokenizer,
            system_fingerprint=self.served.system_fingerprint,
            timeout=self.served.request_timeout,
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


def job_of(request: ChatRequest | CompletionRequest, served: ServedModel) -> Job:
    """Checks a request against the model and encodes it.

    Raises :class:`RequestError` or what :func:`~farthing.openai_protocol.errors.request_error`
    makes one of.
    """
    model = served.names.checked(request.model)
    params = request.params()
    if isinstance(request, ChatRequest):
        ids = _fitting(partial(chat_ids, request, served.encoder), served, "messages")
        return Job(request, served, model, params, (ids,))
    texts = request.prompts()
    prompts = [
        _fitting(partial(_completion_ids, request, text, served.encoder), served, "prompt")
        for text in texts
    ]
    return Job(request, served, model, params, tuple(prompts), tuple(texts))


def chat_ids(
    request: ChatRequest,
    encoder: PromptEncoder,
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    most: int | None = None,
) -> list[int]:
    """Token ids of a conversation. Raises :class:`RequestError` and :class:`ChatTemplateError`.

    With ``most`` also :class:`TooManyTokensError`, where more than those are plainly to come.
    """
    arguments = request.for_template()
    if "developer" not in encoder.chat_template.source:  # OpenAI's newer name for the same role
        for message in arguments["messages"]:
            if message["role"] == "developer":
                message["role"] = "system"
    return encoder.encode_chat(**arguments, tools=tools, most=most)


def _completion_ids(
    request: CompletionRequest, prompt: str | list[int], encoder: PromptEncoder, *, most: int
) -> list[int]:
    if not isinstance(prompt, str):
        return encoder.checked(prompt)
    special = request.add_special_tokens is not False
    return encoder.encode(prompt, add_special_tokens=special, most=most)


class _Encoding(Protocol):
    def __call__(self, *, most: int) -> list[int]: ...


def _fitting(encode: _Encoding, served: ServedModel, param: str) -> list[int]:
    most = served.context_length - 1
    try:
        ids = encode(most=most)
    except TooManyTokensError as error:
        found = f"at least {error.least}"
    else:
        if len(ids) <= most:
            return ids
        found = str(len(ids))
    raise RequestError(  # clients know a full context by this sentence or by the code
        f"This model's maximum context length is {served.context_length} tokens. However, your "
        f"prompt contains {found} input tokens, and at least one is to be generated.",
        param=param,
        code="context_length_exceeded",
    )
