"""Messages of a conversation, checked: roles and parts that a text model can be given."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Tag, model_validator

from farthing.openai_protocol.validation import BY_KIND, FAIL_FAST, Strict


class TextPart(Strict):
    """A part of a content; a text model takes no other."""

    type: Literal["text"]
    text: str


class FunctionCall(Strict):
    """Name and arguments of a call; arguments are JSON text, or an object as some clients send."""

    name: str
    arguments: str | dict[str, Any]


class ToolCall(Strict):
    """A call that the model made earlier in the conversation."""

    id: str | None = None
    type: Literal["function"] = "function"
    function: FunctionCall


Content = Annotated[
    Annotated[str, Tag("text")] | Annotated[list[TextPart], FAIL_FAST, Tag("list")], BY_KIND
]


class ChatMessage(Strict):
    """One message. Only an assistant's that calls tools may be without content."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Content | None = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    thinking: str | None = None

    @model_validator(mode="after")
    def _has_content(self) -> ChatMessage:
        if self.content is None and not (self.role == "assistant" and self.tool_calls):
            raise ValueError("needs content")
        return self

    def for_template(self) -> dict[str, Any]:
        """The message as chat templates take it."""
        return {"content": None, **self.model_dump(exclude_none=True)}
