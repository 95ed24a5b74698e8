"""Messages as a chat template gets them: content marked, formats of the field made one.

The roles and keys are OpenAI's. What clients write in several ways (null content, content in parts,
arguments as JSON text, three names for reasoning) reaches templates in the way they were written
for.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, Literal, NamedTuple

from farthing.errors import ChatTemplateError

# The only words of a message that count as the template's: some templates write '<|' + role + '|>'.
KNOWN_ROLES = frozenset(
    {"assistant", "developer", "function", "ipython", "model", "system", "tool", "user"}
)
REASONING_NAMES = ("reasoning_content", "thinking", "reasoning")

Messages = Sequence[Mapping[str, Any]]


class Form(NamedTuple):
    """How a template gets what templates expect in different ways."""

    null_content: Literal["none", "absent", "empty"] = "absent"  # of ``"content": null``
    arguments: Literal["object", "text"] = "object"  # of a tool call, however they were given
    parts: Literal["list", "text"] = "list"  # of content, if it was given so


def possible_forms(
    messages: Messages, *, asks_for_none: bool, takes_parts: bool = False
) -> list[Form]:
    """Forms of ``messages`` that a template may need, the likeliest first.

    ``asks_for_none``: the template tests whether content is none. ``takes_parts``: it goes through
    the parts of content.
    """
    contents: list[Literal["none", "absent", "empty"]] = ["absent"]
    if any("content" in message and message["content"] is None for message in messages):
        contents = ["none", "absent", "empty"] if asks_for_none else ["absent", "empty"]
    arguments: list[Literal["object", "text"]] = ["object"]
    if any(message.get("tool_calls") for message in messages):
        arguments.append("text")
    parts: list[Literal["list", "text"]] = ["list"]
    given = [m["content"] for m in messages if isinstance(m.get("content"), (list, tuple))]
    if given and all(_is_text(part) for content in given for part in content):
        parts = ["list", "text"] if takes_parts else ["text", "list"]
    return [Form(*each) for each in product(contents, arguments, parts)]


def taken_in_messages(messages: Messages, form: Form) -> Any:
    """``messages`` for a template, their strings marked as content.

    Other keys than content whose value is None count as absent, and reasoning goes by the names
    that templates read (``reasoning_content``, in some ``thinking``). Needs a budget on the thread.
    """
    from farthing.tokenization.sandbox.values import made, taken_in

    taken = []
    for message in messages:
        fields = {}
        for key, value in _with_reasoning(message).items():
            if value is None:
                if key != "content" or form.null_content == "absent":
                    continue
                fields[taken_in(key)] = None if form.null_content == "none" else ""
            elif key == "role" and isinstance(value, str) and value in KNOWN_ROLES:
                fields[taken_in(key)] = str.__str__(value)
            elif key == "content" and form.parts == "text" and isinstance(value, (list, tuple)):
                fields[taken_in(key)] = taken_in("\n".join([part["text"] for part in value]))
            elif key == "tool_calls":
                fields[taken_in(key)] = taken_in(_tool_calls(value, form))
            else:
                fields[taken_in(key)] = taken_in(value)
        taken.append(made(fields))
    return made(taken)


def check_messages(messages: Messages) -> None:
    """Raises ChatTemplateError for a message that is not a dict."""
    for message in messages:
        if not isinstance(message, Mapping):
            raise ChatTemplateError(f"a message is a {type(message).__name__}, not a dict")


def check_tools(tools: Sequence[Mapping[str, Any]]) -> None:
    """Raises ChatTemplateError for a tool that is not a dict."""
    for index, tool in enumerate(tools):
        if not isinstance(tool, Mapping):
            raise ChatTemplateError(
                f"tools[{index}] is a {type(tool).__name__}, not a dict like "
                '{"type": "function", "function": {"name": ..., "parameters": {...}}}'
            )


class Continuation:
    """The last message with a mark at its end, by which its end is found in the rendered text.

    ``messages`` are those to render. The mark cannot be guessed, so no message can spell it.
    Raises ChatTemplateError if the last message has no text.
    """

    def __init__(self, messages: Messages) -> None:
        self._mark = secrets.token_hex(16)
        # The blank tells whether the template trims what it prints.
        last = messages[-1] if messages else {}
        self.messages = [*messages[:-1], {**last, "content": self._marked(last.get("content"))}]

    def cut(self, text: str) -> str:
        """``text`` up to the end of the last message, which must be in it."""
        from farthing.tokenization.sandbox.provenance import cut

        end = text.rfind(self._mark)
        if end < 0:
            raise ChatTemplateError(
                "continue_final_message: the chat template does not print the end of the last "
                "message, so it cannot be continued"
            )
        kept = cut(text, 0, end)
        trims = text[end + len(self._mark) :][:1] != " "
        return kept.rstrip() if trims else kept

    def _marked(self, content: Any) -> Any:
        if isinstance(content, str):
            return content + self._mark + " "
        if isinstance(content, (list, tuple)):
            for index in reversed(range(len(content))):
                part = content[index]
                if isinstance(part, Mapping) and isinstance(part.get("text"), str):
                    marked = {**part, "text": part["text"] + self._mark + " "}
                    return [*content[:index], marked, *content[index + 1 :]]
        raise ChatTemplateError("continue_final_message: the last message has no text to continue")


def _with_reasoning(message: Mapping[str, Any]) -> Mapping[str, Any]:
    given = (message[name] for name in REASONING_NAMES if message.get(name) is not None)
    reasoning = next(given, None)
    if reasoning is None:
        return message
    return {"thinking": reasoning, **message, "reasoning_content": reasoning}


def _is_text(part: Any) -> bool:
    return isinstance(part, Mapping) and isinstance(part.get("text"), str)


def _tool_calls(calls: Any, form: Form) -> Any:
    if not isinstance(calls, (list, tuple)):
        return calls
    return [_tool_call(call, form) for call in calls]


def _tool_call(call: Any, form: Form) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or "arguments" not in function:
        return call
    arguments = function["arguments"]
    if isinstance(arguments, str) and form.arguments == "object":
        arguments = _parsed(arguments)
    elif isinstance(arguments, Mapping) and form.arguments == "text":
        arguments = json.dumps(arguments, ensure_ascii=False)
    return {**call, "function": {**function, "arguments": arguments}}


def _parsed(text: str) -> Any:
    """The object that ``text`` is in JSON, or ``text`` if it is none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) else text
