"""Chat templates: from messages to text that knows which of it came from the messages.

The text is exactly what jinja2 makes of the template. What is added is the knowledge which
characters the template wrote, where ``<|im_end|>`` is a control token, and which are content,
where it is not: see docs/decisions/chat-template-provenance.md.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from farthing.errors import ChatTemplateError

if TYPE_CHECKING:
    from jinja2 import Template

    from farthing.tokenization.sandbox.environment import ChatEnvironment

# The only words of a message that count as the template's: some templates write '<|' + role + '|>'.
KNOWN_ROLES = frozenset(
    {"assistant", "developer", "function", "ipython", "model", "system", "tool", "user"}
)
_RESERVED = ("messages", "bos_token", "eos_token")


class Segment(NamedTuple):
    """A piece of a rendered chat. Control tokens are recognized only where ``from_template``."""

    text: str
    from_template: bool


class ChatTemplate:
    """A model's chat template, compiled. Safe to use from several threads at once.

    ``source`` is jinja2 as in ``tokenizer_config.json``; ``bos_token`` and ``eos_token`` are what
    it may print by those names (undefined if None). Raises ChatTemplateError if it does not
    compile or is over the size limits of :mod:`farthing.tokenization.sandbox.budget`.
    """

    def __init__(
        self, source: str, *, bos_token: str | None = None, eos_token: str | None = None
    ) -> None:
        self.source = source
        self._template = _compile(source)
        tokens = {"bos_token": bos_token, "eos_token": eos_token}
        self._tokens = {name: token for name, token in tokens.items() if token is not None}

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **extra: Any,
    ) -> list[Segment]:
        """The chat as segments, alternately the template's and the messages'.

        ``messages``, ``tools`` and ``extra`` (further variables of the template) hold JSON values;
        their strings are content. Keys of a message whose value is None count as absent, and tool
        call arguments given as JSON text as the object they are. Raises ChatTemplateError if the
        template refuses the messages, fails, or exceeds its time or size.
        """
        from farthing.tokenization.sandbox.budget import MAX_CHARACTERS, rendering, too_big
        from farthing.tokenization.sandbox.provenance import concat, plain, spans
        from farthing.tokenization.sandbox.values import taken_in

        if reserved := [name for name in _RESERVED if name in extra]:
            raise ChatTemplateError(f"{reserved[0]} is not a further variable of a chat template")
        try:
            with rendering() as budget:
                context = self._template.new_context(
                    {
                        "documents": None,
                        **{name: taken_in(value) for name, value in extra.items()},
                        **self._tokens,
                        "messages": _taken_in_messages(messages),
                        "tools": None if tools is None else taken_in(tools),
                        "add_generation_prompt": bool(add_generation_prompt),
                    }
                )
                parts: list[str] = []
                length = 0
                for part in self._template.root_render_func(context):
                    length += len(part)
                    if length > MAX_CHARACTERS:
                        raise too_big("a chat that long", MAX_CHARACTERS)
                    budget.allocate(len(part))
                    parts.append(part)
                text = concat(parts)
        except ChatTemplateError:
            raise
        except Exception as error:
            raise ChatTemplateError(_failure(error)) from None
        return _segments(plain(text), spans(text))


_lock = threading.Lock()
_shared: list[ChatEnvironment] = []


def _compile(source: str) -> Template:
    from farthing.tokenization.sandbox.environment import ChatEnvironment

    try:
        with _lock:
            if not _shared:
                _shared.append(ChatEnvironment())
            return _shared[0].compiled(source)
    except ChatTemplateError:
        raise
    except Exception as error:
        raise ChatTemplateError(_failure(error)) from None


def _failure(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "the chat template is nested or recurses too deeply"
    line = getattr(error, "lineno", None)
    where = f" (line {line})" if isinstance(line, int) else ""
    reason = str(error).split("\n")[0][:200] or type(error).__name__
    return f"the chat template fails{where}: {reason}"


def _taken_in_messages(messages: Sequence[Mapping[str, Any]]) -> Any:
    from farthing.tokenization.sandbox.values import made, taken_in

    taken = []
    for message in messages:
        if not isinstance(message, Mapping):
            raise ChatTemplateError(f"a message is a {type(message).__name__}, not a dict")
        fields = {}
        for key, value in message.items():
            if value is None:
                continue
            if key == "role" and isinstance(value, str) and value in KNOWN_ROLES:
                fields[taken_in(key)] = str.__str__(value)
            elif key == "tool_calls":
                fields[taken_in(key)] = taken_in(_with_parsed_arguments(value))
            else:
                fields[taken_in(key)] = taken_in(value)
        taken.append(made(fields))
    return made(taken)


def _with_parsed_arguments(calls: Any) -> Any:
    """Tool calls whose ``function.arguments``, JSON text in the OpenAI format, are objects."""
    if not isinstance(calls, (list, tuple)):
        return calls
    return [_with_parsed_argument(call) for call in calls]


def _with_parsed_argument(call: Any) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = json.loads(function["arguments"])
    except (ValueError, RecursionError):
        return call
    if not isinstance(arguments, dict):
        return call
    return {**call, "function": {**function, "arguments": arguments}}


def _segments(text: str, content: tuple[tuple[int, int], ...]) -> list[Segment]:
    segments = []
    position = 0
    for start, stop in content:
        segments += [Segment(text[position:start], True), Segment(text[start:stop], False)]
        position = stop
    segments.append(Segment(text[position:], True))
    return [segment for segment in segments if segment.text]
