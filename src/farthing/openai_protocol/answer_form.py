"""The form an answer is asked to have, in the ways in which clients ask."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import ConfigDict, Field

from farthing.openai_protocol.errors import RequestError
from farthing.openai_protocol.validation import Strict
from farthing.sampling.grammar.params import StructuredOutputsParams


class JsonSchemaFormat(Strict):
    """The schema of ``{"type": "json_schema"}``; it is always enforced, ``strict`` or not."""

    name: str | None = None
    description: str | None = None
    schema_: dict[str, Any] | bool | None = Field(default=None, alias="schema")
    strict: bool | None = None


class ResponseFormat(Strict):
    """``response_format`` of the OpenAI API; ``schema`` beside ``json_object`` as in llama.cpp."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaFormat | None = None
    schema_: dict[str, Any] | bool | None = Field(default=None, alias="schema")

    def form(self) -> dict[str, Any] | None:
        """Arguments of :class:`StructuredOutputsParams`; None for any text."""
        if self.type == "text":
            return None
        if self.type == "json_schema":
            if self.json_schema is None or self.json_schema.schema_ is None:
                raise RequestError(
                    "response_format.json_schema: a schema is needed for the type 'json_schema'",
                    param="response_format",
                )
            return {"json": self.json_schema.schema_}
        return {"json_object": True} if self.schema_ is None else {"json": self.schema_}


class StructuredOutputs(Strict):
    """``structured_outputs`` of vLLM; what is not known here is an error, never left out."""

    model_config = ConfigDict(extra="forbid")

    json_: str | dict[str, Any] | bool | None = Field(default=None, alias="json")
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None

    def form(self) -> dict[str, Any]:
        """Arguments of :class:`StructuredOutputsParams`."""
        return {
            "json": self.json_,
            "regex": self.regex,
            "choice": self.choice,
            "grammar": self.grammar,
            "json_object": self.json_object,
        }


def answer_form(
    response_format: ResponseFormat | None,
    structured_outputs: StructuredOutputs | None,
    others: Mapping[str, tuple[str, Any]],
) -> StructuredOutputsParams | None:
    """The one form that is asked; None for any text.

    ``others``: what other servers' fields have, each with what :class:`StructuredOutputs` calls
    it; None is nothing. Errors name the field that was sent. Raises :class:`RequestError` for two
    forms and :class:`InvalidParameterError` for one that is not understood or too complex.
    """
    forms = {
        "response_format": response_format and response_format.form(),
        "structured_outputs": structured_outputs and structured_outputs.form(),
        **{name: {kind: value} for name, (kind, value) in others.items() if value is not None},
    }
    asked = {name: form for name, form in forms.items() if form}
    if len(asked) > 1:
        raise RequestError(
            f"{' and '.join(asked)}: only one of them can be given", param=[*asked][1]
        )
    for name, form in asked.items():
        given = [kind for kind, value in form.items() if value is not None]
        inside = name == "structured_outputs" and len(given) == 1
        return StructuredOutputsParams(**form, called=f"{name}.{given[0]}" if inside else name)
    return None
