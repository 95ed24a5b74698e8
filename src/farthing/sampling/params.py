"""What a request asks of generation, checked when it is made."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from farthing.errors import InvalidParameterError

GREEDY_BELOW = 1e-5
"""Temperatures below this are greedy: dividing by them would overflow."""

MAX_LOGPROBS = 20
MAX_STOP_STRINGS = 16
MAX_STOP_BYTES = 256


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Sampling parameters of one request; names and defaults as in the OpenAI API and vLLM.

    ``temperature`` 0 is greedy: the highest logit, the lowest token id among equals. ``max_tokens``
    None generates until the end of sequence or a full context. ``stop`` strings end the text before
    their first occurrence; ``stop_token_ids`` end it like the model's own end-of-sequence tokens.
    ``seed`` None is replaced by a random one, kept with the request. ``logprobs`` n returns the log
    probabilities of the n likeliest tokens and of the chosen one at each position.

    Raises :class:`InvalidParameterError` naming the parameter and its value.
    """

    temperature: float = 1.0
    max_tokens: int | None = 16
    stop: str | Sequence[str] | None = None
    stop_token_ids: Sequence[int] | None = None
    ignore_eos: bool = False
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    seed: int | None = None
    logprobs: int | None = None
    stop_strings: tuple[str, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        _require(
            _is_number(self.temperature) and 0 <= self.temperature <= 1000,
            "temperature",
            self.temperature,
            "a number from 0 to 1000",
        )
        _require(
            self.max_tokens is None or (_is_int(self.max_tokens) and self.max_tokens >= 1),
            "max_tokens",
            self.max_tokens,
            "at least 1, or None for no limit but the context",
        )
        stops = _items("stop", self.stop, "a string or a sequence of strings")
        _require(
            len(stops) <= MAX_STOP_STRINGS,
            "stop",
            len(stops),
            f"at most {MAX_STOP_STRINGS} strings",
        )
        for stop in stops:
            _require(
                isinstance(stop, str) and 0 < _utf8_length(stop) <= MAX_STOP_BYTES,
                "stop",
                stop if isinstance(stop, str) and len(stop) <= 64 else type(stop).__name__,
                f"UTF-8 text of 1 to {MAX_STOP_BYTES} bytes",
            )
        object.__setattr__(self, "stop_strings", stops)
        for token in _items("stop_token_ids", self.stop_token_ids, "a sequence of token ids"):
            _require(_is_int(token) and 0 <= token < 2**31, "stop_token_ids", token, "a token id")
        _require(
            self.seed is None or (_is_int(self.seed) and 0 <= self.seed < 2**64),
            "seed",
            self.seed,
            "a whole number from 0 below 2**64",
        )
        _require(
            self.logprobs is None
            or (_is_int(self.logprobs) and 0 <= self.logprobs <= MAX_LOGPROBS),
            "logprobs",
            self.logprobs,
            f"from 0 to {MAX_LOGPROBS}",
        )

    @property
    def greedy(self) -> bool:
        """True when the token is the highest logit, without noise."""
        return self.temperature < GREEDY_BELOW


def _items(name: str, value: Any, right: str) -> tuple[Any, ...]:
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,)
    _require(isinstance(value, Iterable), name, value, right)
    return tuple(value)


def _utf8_length(text: str) -> int:
    """Bytes of ``text``; 0 if it has a lone surrogate, which no text has."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return 0


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _require(good: bool, name: str, value: object, right: str) -> None:
    if not good:
        raise InvalidParameterError(f"{name}={value!r} must be {right}")
