"""Chat templates: from messages to text that knows which of it came from the messages.

The text is exactly what jinja2 makes of the template. What is added is the knowledge which
characters the template wrote, where ``<|im_end|>`` is a control token, and which are content,
where it is not: see docs/decisions/chat-template-provenance.md.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from farthing.errors import ChatTemplateError
from farthing.tokenization.messages import (
    Continuation,
    Messages,
    check_messages,
    check_tools,
    possible_forms,
    taken_in_messages,
)

if TYPE_CHECKING:
    from farthing.tokenization.sandbox.budget import Budget
    from farthing.tokenization.sandbox.environment import ChatEnvironment, Compiled

RESERVED = (
    *("messages", "tools", "add_generation_prompt", "continue_final_message"),
    *("bos_token", "eos_token"),
)
"""Names that a further variable of a template cannot have."""

THINKING_SWITCHES = ("enable_thinking", "thinking")
"""Variables by which templates let their model think first, or not."""


def further_variables(given: Mapping[str, Any]) -> dict[str, Any]:
    """``given`` as keyword arguments of :meth:`ChatTemplate.render`.

    Raises ChatTemplateError for a name that is no name or stands for something else.
    """
    if not isinstance(given, Mapping):
        raise ChatTemplateError(
            f"the variables of a chat template are a {type(given).__name__}, not a dict"
        )
    for name in given:
        if not isinstance(name, str) or not name.isidentifier() or name in RESERVED:
            raise ChatTemplateError(
                f"{str(name)[:40]!r} is not a further variable of a chat template"
            )
    return dict(given)


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
        self._compiled = _compile(source)
        tokens = {"bos_token": bos_token, "eos_token": eos_token}
        self._tokens = {name: token for name, token in tokens.items() if token is not None}

    @property
    def variables(self) -> frozenset[str]:
        """Names the template reads without setting them: messages, tools, its own switches."""
        return self._compiled.variables

    @property
    def thinking_switches(self) -> tuple[str, ...]:
        """Variables of the template that turn its model's thinking on and off."""
        return tuple(name for name in THINKING_SWITCHES if name in self.variables)

    def render(
        self,
        messages: Messages,
        /,
        *,
        add_generation_prompt: bool | None = None,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **extra: Any,
    ) -> list[Segment]:
        """The chat as segments, alternately the template's and the messages'.

        ``messages``, ``tools`` and ``extra`` (further variables of the template) hold JSON values;
        their strings are content. With ``continue_final_message`` the text ends where the last
        message does; else, unless ``add_generation_prompt`` is false, with the beginning of an
        answer. ``"content": null`` is None for a template that asks whether content is; for others,
        and where that fails, it is absent, or else empty. Arguments of tool calls, given as JSON
        text or as an object, are an object, or text where that fails. Content in parts
        (``{"type": "text", "text": ...}``) is their texts, a line each, for a template that does
        not go through parts.

        Raises ChatTemplateError if the template refuses the messages, fails, or exceeds its time
        or size.
        """
        from farthing.tokenization.sandbox.budget import rendering
        from farthing.tokenization.sandbox.provenance import plain, spans
        from farthing.tokenization.sandbox.values import taken_in

        extra = further_variables(extra)
        if add_generation_prompt and continue_final_message:
            raise ChatTemplateError(
                "continue_final_message goes on with the last message, add_generation_prompt "
                "begins another: choose one"
            )
        check_messages(messages)
        check_tools(tools or ())
        continuation = Continuation(messages) if continue_final_message else None
        if continuation is not None:
            messages = continuation.messages
        if add_generation_prompt is None:
            add_generation_prompt = not continue_final_message
        try:
            with rendering() as budget:
                variables = {
                    "documents": None,
                    **{name: taken_in(value) for name, value in extra.items()},
                    **self._tokens,
                    "tools": taken_in(tools) if tools else None,
                    "add_generation_prompt": bool(add_generation_prompt),
                }
                text = self._text(messages, variables, budget)
                if continuation is not None:
                    text = continuation.cut(text)
        except ChatTemplateError:
            raise
        except Exception as error:
            raise ChatTemplateError(_failure(error)) from None
        return _segments(plain(text), spans(text))

    def _text(self, messages: Messages, variables: dict[str, Any], budget: Budget) -> str:
        first: Exception | None = None
        for form in possible_forms(
            messages,
            asks_for_none=self._compiled.asks_for_none,
            takes_parts=self._compiled.takes_parts,
        ):
            try:
                return self._printed(taken_in_messages(messages, form), variables, budget)
            except ChatTemplateError:
                raise
            except Exception as error:
                first = first or error
        assert first is not None
        raise first

    def _printed(self, messages: Any, variables: dict[str, Any], budget: Budget) -> str:
        from farthing.tokenization.sandbox.budget import MAX_CHARACTERS, too_much
        from farthing.tokenization.sandbox.provenance import concat

        template = self._compiled.template
        context = template.new_context({**variables, "messages": messages})
        parts: list[str] = []
        length = 0
        for part in template.root_render_func(context):
            length += len(part)
            if length > MAX_CHARACTERS:
                raise too_much("a chat that long", MAX_CHARACTERS)
            budget.allocate(len(part))
            parts.append(part)
        return concat(parts)


_lock = threading.Lock()
_shared: list[ChatEnvironment] = []


def _compile(source: str) -> Compiled:
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


def _segments(text: str, content: tuple[tuple[int, int], ...]) -> list[Segment]:
    segments = []
    position = 0
    for start, stop in content:
        segments += [Segment(text[position:start], True), Segment(text[start:stop], False)]
        position = stop
    segments.append(Segment(text[position:], True))
    return [segment for segment in segments if segment.text]
