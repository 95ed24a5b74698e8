"""``POST /v1/chat/completions``: the request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from farthing.openai_protocol.answer_limit import answer_limit
from farthing.openai_protocol.errors import RequestError, shown
from farthing.openai_protocol.messages import ChatMessage
from farthing.openai_protocol.sampling_fields import SamplingFields
from farthing.openai_protocol.validation import FAIL_FAST, Strict, parse
from farthing.sampling.params import MAX_LOGPROBS, SamplingParams
from farthing.tokenization.chat_template import RESERVED

# A template comes with the model, and only with it; nor may a request end its rendering early.
_NOT_VARIABLES = (*RESERVED, "chat_template", "tokenize")

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class Reasoning(Strict):
    """``reasoning_effort`` as some clients write it; what is not known here is an error."""

    model_config = ConfigDict(extra="forbid")

    effort: Effort | None = None


class ChatRequest(SamplingFields):
    """A conversation to go on with. Without a limit the answer may fill the context."""

    messages: Annotated[list[ChatMessage], FAIL_FAST, Field(min_length=1)]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    reasoning_effort: Effort | None = None
    reasoning: Reasoning | None = None
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
        limit = answer_limit(
            self,
            ("max_completion_tokens", "max_tokens"),
            default=None,
            least=1,
            right=", or null for all the context",
        )
        return self.sampling_params(
            max_tokens=limit,
            logprobs=(self.top_logprobs or 0) if self.logprobs else None,
        )

    def for_template(self) -> dict[str, Any]:
        """The messages and variables of the chat template: arguments of ``LLM.encode_chat``.

        Raises :class:`RequestError` for a variable that a request may not set, and for an answer
        that is to be both begun and gone on with.
        """
        if self.add_generation_prompt and self.continue_final_message:
            raise RequestError(
                "continue_final_message: it goes on with the last message, add_generation_prompt "
                "begins another; give one of them",
                param="continue_final_message",
            )
        variables = dict(self.chat_template_kwargs or {})
        for name in variables:
            if not name.isidentifier() or name in _NOT_VARIABLES:
                raise RequestError(
                    f"chat_template_kwargs: {shown(name)} cannot be given in it",
                    param="chat_template_kwargs",
                )
        if self.documents is not None:
            variables["documents"] = self.documents
        effort = self._effort()
        if effort is not None:
            variables["reasoning_effort"] = effort
        return {
            "messages": [message.for_template() for message in self.messages],
            "add_generation_prompt": self.add_generation_prompt,
            "continue_final_message": bool(self.continue_final_message),
            "chat_template_kwargs": variables,
        }

    def _effort(self) -> str | None:
        other = None if self.reasoning is None else self.reasoning.effort
        if None not in (other, self.reasoning_effort) and other != self.reasoning_effort:
            raise RequestError(
                f"reasoning.effort={other!r}: reasoning_effort={self.reasoning_effort!r} says "
                "something else; give one of them",
                param="reasoning.effort",
            )
        return self.reasoning_effort or other

    def _refuse_tools(self) -> None:
        """No calls are read out of answers yet; an answer must not look as if there were none."""
        if self.tool_choice not in (None, "none", "auto"):
            raise RequestError(
                "tool_choice: calls of functions are not served yet; leave it out, or give 'none'",
                param="tool_choice",
            )
        if self.tools and self.tool_choice != "none":
            raise RequestError(
                "tools: calls of functions are not served yet; leave them out, or give "
                "tool_choice 'none'",
                param="tools",
            )
