"""The fields that chat and completion requests share, and what they ask of sampling."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import ConfigDict, Field, Tag

from farthing.errors import InvalidParameterError
from farthing.openai_protocol.answer_form import ResponseFormat, StructuredOutputs, answer_form
from farthing.openai_protocol.errors import RequestError, shown
from farthing.openai_protocol.unserved_fields import WITHOUT_EFFECT, refuse_unserved
from farthing.openai_protocol.validation import BY_KIND, FAIL_FAST, Strict
from farthing.sampling.params import MAX_CHOICES, MAX_LOGPROBS, SamplingParams

TextOrTexts = Annotated[
    Annotated[str, Tag("text")] | Annotated[list[str], FAIL_FAST, Tag("list")], BY_KIND
]
TokenIds = Annotated[list[int], FAIL_FAST]

_JSON_WORDS = (
    *(("None", "null"), ("True", "true"), ("False", "false")),
    *(("a sequence", "a list"), ("a mapping", "an object")),
)
_TOKEN_ID = re.compile(r"0|[1-9][0-9]{0,9}")

_PASSED_ON = (
    *("n", "temperature", "top_p", "top_k", "min_p", "typical_p", "repetition_penalty"),
    *("presence_penalty", "frequency_penalty", "dry_multiplier", "dry_base", "dry_allowed_length"),
    *("dry_penalty_last_n", "dry_sequence_breakers", "allowed_token_ids", "bad_words"),
    *("min_tokens", "stop", "stop_token_ids", "ignore_eos", "include_stop_str_in_output"),
    *("skip_special_tokens", "prompt_logprobs"),
)


class StreamOptions(Strict):
    """What a stream tells beside the answer."""

    include_usage: bool = False
    continuous_usage_stats: bool = False


class SamplingFields(Strict):
    """Names, defaults and ranges of the OpenAI API and of vLLM's additions; null is the default.

    Ranges without a bound here are those of :class:`SamplingParams`.
    """

    model_config = ConfigDict(extra="allow")

    model: str | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None
    priority: int | None = None
    cache_salt: str | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None

    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    typical_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    dry_multiplier: float | None = None
    dry_base: float | None = None
    dry_allowed_length: int | None = None
    dry_penalty_last_n: int | None = None
    dry_sequence_breakers: Annotated[list[str], FAIL_FAST] | None = None
    logit_bias: dict[str, float] | None = None
    allowed_token_ids: TokenIds | None = None
    bad_words: Annotated[list[str], FAIL_FAST] | None = None
    max_tokens: int | None = None
    n_predict: int | None = None
    max_new_tokens: int | None = None
    min_tokens: int | None = None
    stop: TextOrTexts | None = None
    stop_token_ids: TokenIds | None = None
    ignore_eos: bool | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**64)] | None = None
    prompt_logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None

    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: str | dict[str, Any] | bool | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    grammar: str | None = None

    @property
    def unknown_fields(self) -> tuple[str, ...]:
        """Names of fields that nothing here knows, and that are left out."""
        return tuple(name for name in self.model_extra or () if name not in WITHOUT_EFFECT)

    def sampling_params(self, *, max_tokens: int | None, logprobs: int | None) -> SamplingParams:
        """What the request asks of sampling.

        Raises :class:`RequestError` and :class:`InvalidParameterError`.
        """
        self._refuse_what_is_not_served()
        if self.stream and self.prompt_logprobs is not None:
            raise RequestError(
                "prompt_logprobs: a stream has no place for them; ask for the answer whole",
                param="prompt_logprobs",
            )
        given = {name: getattr(self, name) for name in _PASSED_ON}
        forms: dict[str, tuple[str, Any]] = {
            f"guided_{kind}": (kind, getattr(self, f"guided_{kind}"))
            for kind in ("json", "regex", "choice", "grammar")
        }
        forms["grammar"] = ("grammar", self.grammar or None)  # llama-server's; "" is none
        bias = None if self.logit_bias is None else _by_id(self.logit_bias)
        form = answer_form(self.response_format, self.structured_outputs, forms)
        try:
            return SamplingParams(
                **{name: value for name, value in given.items() if value is not None},
                max_tokens=max_tokens,
                logprobs=logprobs,
                seed=None if self.seed is None else self.seed % 2**64,
                logit_bias=bias,
                structured_outputs=form,
            )
        except InvalidParameterError as error:
            raise InvalidParameterError(_in_json(str(error))) from None

    def _refuse_what_is_not_served(self) -> None:
        if self.stream_options is not None and not self.stream:
            raise RequestError("stream_options: they are for a stream", param="stream_options")
        refuse_unserved(self.model_extra or {}, self)


def _in_json(message: str) -> str:
    """What should be right as clients know it; the value before is theirs."""
    wrong, must, right = message.rpartition(" must be ")
    for python, json in _JSON_WORDS:
        right = right.replace(python, json)
    return wrong + must + right


def _by_id(bias: dict[str, float]) -> dict[int, float]:
    for key in bias:
        if not _TOKEN_ID.fullmatch(key):
            raise RequestError(
                f"logit_bias: key {shown(key)} must be a token id", param="logit_bias"
            )
    return {int(key): value for key, value in bias.items()}
