"""From messages to token ids: a model's template applied with its tokenizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from farthing.errors import ChatTemplateError
from farthing.tokenization.chat_template import ChatTemplate
from farthing.tokenization.tokenizer import Tokenizer

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message.role + '\\n' + (message.content or '') + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

_CHATML_MARKS = {"<|im_start|>", "<|im_end|>"}


def encode_chat(
    tokenizer: Tokenizer,
    template: ChatTemplate,
    messages: Sequence[Mapping[str, Any]],
    most: int | None = None,
    /,
    *,
    add_generation_prompt: bool | None = None,
    continue_final_message: bool = False,
    tools: Sequence[Mapping[str, Any]] | None = None,
    **extra: Any,
) -> list[int]:
    """Token ids of a chat: the template's control tokens, and no control token from content.

    Nothing is added to what the template writes (it writes its own beginning of text). Raises
    ChatTemplateError as :meth:`ChatTemplate.render` does, and for no messages; TooManyTokensError
    for what is plainly more than ``most``.
    """
    if not messages:
        raise ChatTemplateError("messages: there are none, at least one is needed")
    segments = template.render(
        messages,
        add_generation_prompt=add_generation_prompt,
        continue_final_message=continue_final_message,
        tools=tools,
        **extra,
    )
    return tokenizer.encode_parts(segments, most)


def can_chat(template: str | None, tokenizer: Tokenizer) -> bool:
    """True if :func:`chat_template_of` has a template to compile."""
    return template is not None or set(tokenizer.control_tokens) >= _CHATML_MARKS


def chat_template_of(template: str | None, tokenizer: Tokenizer) -> ChatTemplate:
    """A checkpoint's chat template, compiled.

    A checkpoint without one gets ChatML if its vocabulary has ``<|im_start|>`` and
    ``<|im_end|>`` as control tokens. Raises ChatTemplateError if neither is there.
    """
    if not can_chat(template, tokenizer):
        raise ChatTemplateError(
            "the model has no chat template: it continues text (`farthing run`, "
            "LLM.generate), or use a model trained for chat ('instruct' or 'it' in its name)"
        )
    text = CHATML if template is None else template
    return ChatTemplate(text, bos_token=tokenizer.bos_token, eos_token=tokenizer.eos_token)
