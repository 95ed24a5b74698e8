"""``POST /v1/completions``: the request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field, WithJsonSchema

from farthing.openai_protocol.answer_limit import answer_limit
from farthing.openai_protocol.errors import RequestError, shown
from farthing.openai_protocol.sampling_fields import SamplingFields
from farthing.openai_protocol.validation import parse
from farthing.sampling.params import MAX_LOGPROBS, SamplingParams

MAX_PROMPTS = 1024
DEFAULT_MAX_TOKENS = 16

_TEXT = {"type": "string"}
_IDS = {"type": "array", "items": {"type": "integer"}}
_FORMS = [_TEXT, _IDS, {"type": "array", "items": _TEXT}, {"type": "array", "items": _IDS}]


class CompletionRequest(SamplingFields):
    """Texts to go on with, as text or as token ids."""

    prompt: Annotated[Any, WithJsonSchema({"anyOf": _FORMS})]
    echo: bool | None = None
    logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    add_special_tokens: bool | None = None

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> CompletionRequest:
        """The request of a body. Raises :class:`RequestError`."""
        return parse(cls, body)

    @property
    def only_echo(self) -> bool:
        """Whether nothing is to be generated: the prompt is asked back, with what it scores."""
        return bool(self.echo) and self._limit() == 0

    def params(self) -> SamplingParams:
        """What the request asks of sampling.

        One token is generated where none is asked, to be left out of the response. Raises
        :class:`RequestError` and :class:`InvalidParameterError`.
        """
        params = self.sampling_params(
            max_tokens=1 if self.only_echo else self._limit(), logprobs=self.logprobs
        )
        if self.echo and self.logprobs is not None:
            return replace(params, prompt_logprobs=max(self.logprobs, params.prompt_logprobs or 0))
        return params

    def prompts(self) -> list[str | list[int]]:
        """The prompts, each a text or token ids. Raises :class:`RequestError`."""
        given = self.prompt
        if isinstance(given, str) or (isinstance(given, list) and given and _is_id(given[0])):
            given = [given]
        if not isinstance(given, list) or not given:
            raise _wrong(f"{shown(given)} is no text, no token ids and no list of them")
        if len(given) > MAX_PROMPTS:
            raise _wrong(f"{len(given)} prompts, at most {MAX_PROMPTS} are taken")
        answers = len(given) * (self.n or 1)
        if answers > MAX_PROMPTS:
            raise _wrong(
                f"{len(given)} prompts with n={self.n} are {answers} answers, at most "
                f"{MAX_PROMPTS} are given at once"
            )
        kind = type(given[0])
        for each in given:
            if type(each) is not kind or kind not in (str, list):
                raise _wrong("all must be texts, or all lists of token ids")
            if not each:
                raise _wrong("it is empty, one token is needed")
            if isinstance(each, list):
                for token in each:
                    if not _is_id(token):
                        raise _wrong(f"{shown(token)} is not a token id")
        return given

    def _limit(self) -> int | None:
        return answer_limit(
            self,
            ("max_tokens",),
            default=DEFAULT_MAX_TOKENS,
            least=0 if self.echo else 1,
            right="" if self.echo else ", or 0 with echo",
        )


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _wrong(problem: str) -> RequestError:
    return RequestError(f"prompt: {problem}", param="prompt")
