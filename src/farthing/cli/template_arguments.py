"""Variables of the model's chat template, as the command line gives them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from farthing.errors import InvalidParameterError

if TYPE_CHECKING:
    from farthing.llm import LLM
    from farthing.tokenization.chat_template import ChatTemplate


@dataclass(slots=True)
class TemplateVariables:
    """Variables by name, and whether the model is to think first (None: as its template has it)."""

    given: dict[str, Any] = field(default_factory=dict)
    think: bool | None = None

    def of(self, template: ChatTemplate) -> dict[str, Any]:
        """The variables for ``template``: its switch of thinking has a name of its own."""
        if self.think is None:
            return self.given
        return {**dict.fromkeys(template.thinking_switches, self.think), **self.given}


def parse_variables(texts: Sequence[str] | None) -> dict[str, Any]:
    """``["NAME=VALUE", ...]`` as variables; a value that is not JSON is text.

    Raises :class:`InvalidParameterError` and, for a name that stands for something else,
    :class:`ChatTemplateError`.
    """
    from farthing.cli.generation import require_utf8
    from farthing.tokenization.chat_template import further_variables

    variables: dict[str, Any] = {}
    for text in texts or ():
        require_utf8("--chat-template-arg", text)
        name, equals, value = text.partition("=")
        if not equals:
            raise InvalidParameterError(f"--chat-template-arg {text}: NAME=VALUE is needed")
        try:
            variables[name] = json.loads(value)
        except (ValueError, RecursionError):
            variables[name] = value
    return further_variables(variables)


def refuse_without_template(variables: TemplateVariables) -> None:
    """Raises :class:`InvalidParameterError` if there are any, as they would reach nothing."""
    if variables.given or variables.think is not None:
        raise InvalidParameterError(
            "--think, --no-think and --chat-template-arg are for a chat template, and none is used"
        )


def require_switch(llm: LLM) -> None:
    """Raises :class:`InvalidParameterError` if thinking cannot be turned on and off."""
    if not llm.chat_template.thinking_switches:
        raise InvalidParameterError(
            "the model's chat template has no switch for thinking: it always does, or never"
        )
