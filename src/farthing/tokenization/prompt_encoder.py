"""Prompts and conversations as token ids, with no weights at hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from farthing.errors import InvalidParameterError
from farthing.tokenization.chat import can_chat, chat_template_of, encode_chat
from farthing.tokenization.chat_template import ChatTemplate, further_variables
from farthing.tokenization.tokenizer import Tokenizer


class PromptEncoder:
    """A model's tokenizer and chat template. Safe to use from several threads at once.

    ``template``: source of the checkpoint's chat template, None if it has none. ``vocab_size``:
    rows of the model's embedding, which may differ from the tokens that the tokenizer has.
    """

    def __init__(self, tokenizer: Tokenizer, template: str | None, vocab_size: int) -> None:
        self.tokenizer = tokenizer
        self.vocab_size = vocab_size
        self._source = template
        self._template: ChatTemplate | None = None
        self._given: ChatTemplate | None = None

    def encode(
        self, text: str, *, add_special_tokens: bool = True, most: int | None = None
    ) -> list[int]:
        """Token ids of a text its asker wrote: the spelling of a control token is that token.

        Raises :class:`InvalidParameterError` for a lone surrogate, and
        :class:`TooManyTokensError` for a text that is plainly more than ``most`` tokens; not every
        such text is seen through.
        """
        return self.tokenizer.encode(
            text, add_special_tokens=add_special_tokens, allow_control=True, most=most
        )

    def checked(self, ids: list[int], name: str = "prompt") -> list[int]:
        """``ids``; raises :class:`InvalidParameterError` for one that the model has no row for."""
        for token in ids:
            if not 0 <= token < self.vocab_size:
                raise InvalidParameterError(
                    f"{name}: token id {token} must be from 0 below {self.vocab_size}"
                )
        return ids

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        add_generation_prompt: bool | None = None,
        continue_final_message: bool = False,
        most: int | None = None,
    ) -> list[int]:
        """Token ids of a conversation, up to where the answer begins.

        Text of a message never becomes a control token. ``chat_template`` is one to use instead of
        the model's. Raises :class:`ChatTemplateError`, and for ``most`` as :meth:`encode`.
        """
        return encode_chat(
            self.tokenizer,
            self.chat_template if chat_template is None else self._compiled(chat_template),
            messages,
            most,
            tools=tools,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            **further_variables(chat_template_kwargs or {}),
        )

    @property
    def chat_template(self) -> ChatTemplate:
        """The model's chat template. Raises :class:`ChatTemplateError` if it has none."""
        if self._template is None:
            self._template = chat_template_of(self._source, self.tokenizer)
        return self._template

    @property
    def has_chat_template(self) -> bool:
        """True when conversations can be encoded."""
        return can_chat(self._source, self.tokenizer)

    def _compiled(self, source: str) -> ChatTemplate:
        """A caller's template; the last one is kept, as callers mostly have one."""
        template = self._given
        if template is None or template.source != source:
            template = self._given = chat_template_of(source, self.tokenizer)
        return template
