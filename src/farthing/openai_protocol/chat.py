"""``POST /v1/chat/completions``: the request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from farthing.openai_protocol.errors import RequestError
from farthing.openai_protocol.messages import ChatMessage
from farthing.openai_protocol.sampling_fields import SamplingFields
from farthing.openai_protocol.validation import FAIL_FAST, parse
from farthing.sampling.params import MAX_LOGPROBS, SamplingParams

# A template comes with the model, and only with it; nor may a request end its rendering early.
_NOT_VARIABLES = ("chat_template", "tokenize")


class ChatRequest(SamplingFields):
    """A conversation to go on with. Without a limit the answer may fill the context."""

    messages: Annotated[list[ChatMessage], FAIL_FAST, Field(min_length=1)]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = (
        None
    )
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    documents: list[dict[str, Any]] | None = None
    echo: bool | None = None
    add_special_tokens: bool | None = None

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> ChatRequest:
        """The request of a body. Raises :class:`RequestError`."""
        return parse(cls, body)

    def params(self) -> SamplingParams:
        """What the request asks of sampling.

        Raises :class:`RequestError` and :class:`InvalidParameterError`.
        """
        self._refuse_tools()
        for name in ("echo", "add_special_tokens"):
            if getattr(self, name):
                raise RequestError(f"{name}: this is for completions", param=name)
        if self.top_logprobs is not None and not self.logprobs:
            raise RequestError("top_logprobs: logprobs must be true with it", param="top_logprobs")
        limits = (self.max_completion_tokens, self.max_tokens)
        if self.max_completion_tokens is not None and self.max_completion_tokens < 1:
            raise RequestError(
                f"max_completion_tokens={self.max_completion_tokens} must be at least 1, or null "
                "for all the context",
                param="max_completion_tokens",
            )
        return self.sampling_params(
            max_tokens=next((limit for limit in limits if limit is not None), None),
            logprobs=(self.top_logprobs or 0) if self.logprobs else None,
        )

    def for_template(self) -> dict[str, Any]:
        """The messages and variables of the chat template: arguments of ``LLM.encode_chat``.

        Raises :class:`RequestError` for a variable that a request may not set.
        """
        variables = dict(self.chat_template_kwargs or {})
        for name in _NOT_VARIABLES:
            if name in variables:
                raise RequestError(
                    f"chat_template_kwargs: {name} cannot be given with a request",
                    param="chat_template_kwargs",
                )
        if self.documents is not None:
            variables["documents"] = self.documents
        if self.reasoning_effort is not None:
            variables["reasoning_effort"] = self.reasoning_effort
        return {
            "messages": [message.for_template() for message in self.messages],
            "add_generation_prompt": self.add_generation_prompt,
            "continue_final_message": bool(self.continue_final_message),
            "chat_template_kwargs": variables,
        }

    def _refuse_tools(self) -> None:
        """No calls are read out of answers yet; an answer must not look as if there were none."""
        if self.tool_choice is not None and self.tool_choice not in ("none", "auto"):
            raise RequestError("tool_choice: only 'none' is served yet", param="tool_choice")
        if self.tools is not None and self.tool_choice != "none":
            raise RequestError(
                "tools: calls of functions are not served yet; leave them out, or give "
                "tool_choice 'none'",
                param="tools",
            )
