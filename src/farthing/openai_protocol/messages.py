"""Messages of a conversation, checked: roles and parts that a text model can be given."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Tag, field_validator, model_validator
from pydantic_core import PydanticCustomError

from farthing.openai_protocol.validation import BY_KIND, FAIL_FAST, Strict

_OTHER_PARTS = {
    "image": "images are not served",
    "audio": "sound is not served",
    "video": "videos are not served",
    "file": "files are not served",
}
"""What the types of other parts have in their names, and what is said of them."""


class TextPart(Strict):
    """A part of a content; a text model takes no other."""

    type: Literal["text"]
    text: str

    @field_validator("type", mode="before")
    @classmethod
    def _is_served(cls, kind: object) -> object:
        for name, told in _OTHER_PARTS.items():
            if isinstance(kind, str) and name in kind:
                raise PydanticCustomError("not_served", f"should be 'text': {told}")
        return kind


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
