"""From messages to token ids: a model's template applied with its tokenizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from farthing.errors import ChatTemplateError
from farthing.tokenization.chat_template import ChatTemplate
from farthing.tokenization.source import GgufVocabulary, TokenizerSource
from farthing.tokenization.tokenizer import Tokenizer

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message.role + '\\n' + (message.content or '') + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def encode_chat(
    tokenizer: Tokenizer,
    template: ChatTemplate,
    messages: Sequence[Mapping[str, Any]],
    *,
    add_generation_prompt: bool = True,
    tools: Sequence[Mapping[str, Any]] | None = None,
    **extra: Any,
) -> list[int]:
    """Token ids of a chat: the template's control tokens, and no control token from content.

    Nothing is added to what the template writes (it writes its own beginning of text). Raises
    ChatTemplateError as :meth:`ChatTemplate.render` does.
    """
    segments = template.render(
        messages, add_generation_prompt=add_generation_prompt, tools=tools, **extra
    )
    return tokenizer.encode_parts(segments)


def chat_template_of(source: TokenizerSource, tokenizer: Tokenizer) -> ChatTemplate:
    """The chat template of a checkpoint, compiled.

    A checkpoint without one gets ChatML if its vocabulary has ``<|im_start|>`` and
    ``<|im_end|>`` as control tokens. Raises ChatTemplateError if neither is there.
    """
    text = _template_text(source)
    if text is None:
        if not {"<|im_start|>", "<|im_end|>"} <= set(tokenizer.control_tokens):
            raise ChatTemplateError(
                "the model has no chat template: it continues text (`farthing run`, "
                "LLM.generate), or use a model trained for chat ('instruct' or 'it' in its name)"
            )
        text = CHATML
    return ChatTemplate(text, bos_token=tokenizer.bos_token, eos_token=tokenizer.eos_token)


def _template_text(source: TokenizerSource) -> str | None:
    if source.chat_template is not None or isinstance(source, GgufVocabulary):
        return source.chat_template
    configured = source.config.get("chat_template")
    if isinstance(configured, list):  # several by name
        named = {
            entry.get("name"): entry.get("template")
            for entry in configured
            if isinstance(entry, Mapping)
        }
        configured = named.get("default")
    return configured if isinstance(configured, str) else None
