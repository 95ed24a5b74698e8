"""What callers of ``LLM`` may give, and what is wrong with it."""

from __future__ import annotations

import operator
import reprlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict

from farthing.errors import InvalidParameterError
from farthing.sampling.params import SamplingParams

Prompt = str | Sequence[int] | Mapping[str, Any]
"""Text, token ids, or ``{"prompt": text}`` / ``{"prompt_token_ids": ids}`` as in vLLM.

Such a mapping may have :class:`RequestArguments` of its own, which go before those of the call.
"""

Message = Mapping[str, Any]
"""``{"role": "user", "content": text}``."""


class RequestArguments(TypedDict, total=False):
    """How requests are served beside others."""

    user: str
    """Whom the work is charged to: users get equal shares of a busy engine."""
    priority: int
    """Lower is sooner; requests of one priority come in turn."""
    cache_salt: str | None
    """What prompts have in common is read once for all requests with the same salt."""
    timeout: float | None
    """Seconds after which a request ends with what it has; its finish reason is ``timeout``."""


class ChatArguments(RequestArguments, total=False):
    """How a conversation is written for the model; names and meaning as in vLLM."""

    tools: Sequence[Mapping[str, Any]] | None
    """Functions the model may call: ``{"type": "function", "function": {"name": ...}}``."""
    chat_template: str | None
    """A jinja2 template to use instead of the model's."""
    chat_template_kwargs: Mapping[str, Any] | None
    """Further variables of the template, e.g. ``{"enable_thinking": False}`` or documents."""
    add_generation_prompt: bool | None
    """Whether the beginning of an answer follows; by default, unless a message is continued."""
    continue_final_message: bool
    """Leave the last message open, so that the answer goes on with it."""


def token_ids(given: Any) -> list[int]:
    """A prompt's ids; raises :class:`InvalidParameterError` for what are none."""
    try:
        return [operator.index(token) for token in given]
    except TypeError:
        raise InvalidParameterError(
            f"prompt: {reprlib.repr(given)} must be text, a sequence of token ids, or a "
            "mapping with 'prompt' or 'prompt_token_ids'"
        ) from None


def own_arguments(prompt: Mapping[str, Any]) -> RequestArguments:
    """What a prompt's mapping says of how it is served.

    Raises :class:`InvalidParameterError` for a key that nobody reads.
    """
    names = RequestArguments.__annotations__
    for key in prompt:
        if key not in names and key not in ("prompt", "prompt_token_ids"):
            allowed = ", ".join(("prompt", "prompt_token_ids", *names))
            raise InvalidParameterError(
                f"prompt: the key {reprlib.repr(key)} says nothing; there are {allowed}"
            )
    return {name: prompt[name] for name in names if name in prompt}  # type: ignore[return-value]


def divide(arguments: ChatArguments) -> tuple[RequestArguments, dict[str, Any]]:
    """What says how a request is served, and what says how its conversation is written."""
    given: dict[str, Any] = dict(arguments)
    names = RequestArguments.__annotations__
    request = {name: given.pop(name) for name in list(given) if name in names}
    return request, given  # type: ignore[return-value]


def is_message(item: object) -> bool:
    """Whether it is one message, not a conversation."""
    return isinstance(item, Mapping)


def prompt_list(prompts: Any) -> list[Prompt]:
    """A list of one prompt or of several; raises :class:`InvalidParameterError`."""
    if isinstance(prompts, str | Mapping):
        return [prompts]
    try:
        items: list[Any] = list(prompts)
    except TypeError:
        raise InvalidParameterError(
            f"prompts: {reprlib.repr(prompts)} must be a prompt or a sequence of prompts"
        ) from None
    return [items] if items and all(_is_whole_number(item) for item in items) else items


def _is_whole_number(item: Any) -> bool:
    try:
        operator.index(item)
    except TypeError:
        return False
    return True


def params_list(
    params: SamplingParams | Sequence[SamplingParams] | None, count: int
) -> list[SamplingParams]:
    """Parameters for each of ``count`` prompts; raises :class:`InvalidParameterError`."""
    if params is None or isinstance(params, SamplingParams):
        return [params or SamplingParams()] * count
    if not isinstance(params, Sequence) or not all(isinstance(p, SamplingParams) for p in params):
        raise InvalidParameterError(
            f"sampling_params: {reprlib.repr(params)} must be SamplingParams, or one a prompt"
        )
    if len(params) != count:
        raise InvalidParameterError(
            f"sampling_params: {len(params)} given for {count} prompts; one, or one for each"
        )
    return list(params)


MOST = {
    "max_model_len": 1 << 30,
    "num_threads": 1024,
    "max_num_seqs": 4096,
    "max_in_flight": 1 << 30,
    "max_num_batched_tokens": 8192,
    "max_prefill_chunk": 8192,
    "kv_cache_tokens": 1 << 40,
    "kv_cache_memory_bytes": 1 << 50,
    "prefix_cache_bytes": 1 << 50,
}


def check_counts(**counts: int | None) -> None:
    """Raises :class:`InvalidParameterError` for one that is not from 1 to its ``MOST``, or None."""
    for name, value in counts.items():
        whole = isinstance(value, int) and not isinstance(value, bool)
        if value is not None and not (whole and 1 <= value <= MOST[name]):
            raise InvalidParameterError(
                f"{name}={value!r} must be a whole number from 1 to {MOST[name]}"
            )


def check_names(name: str, value: object, allowed: Iterable[str]) -> None:
    """Raises :class:`InvalidParameterError` for a ``value`` that is not among ``allowed``."""
    if value not in tuple(allowed):
        raise InvalidParameterError(f"{name}={value!r} must be one of {', '.join(allowed)}")


def check_request(arguments: RequestArguments) -> None:
    """Raises :class:`InvalidParameterError` naming what is not as it must be.

    And :class:`TypeError` for a name that says nothing, as Python does for arguments of its own.
    """
    for name in arguments:
        if name not in RequestArguments.__annotations__:
            allowed = ", ".join(RequestArguments.__annotations__)
            raise TypeError(f"unexpected keyword argument {name!r}; a request may have {allowed}")
    user, salt = arguments.get("user", ""), arguments.get("cache_salt")
    if not isinstance(user, str):
        raise InvalidParameterError(f"user={reprlib.repr(user)} must be text")
    if salt is not None and not (isinstance(salt, str) and salt):
        raise InvalidParameterError(f"cache_salt={reprlib.repr(salt)} must be text, or None")
    priority = arguments.get("priority", 0)
    if isinstance(priority, bool) or not isinstance(priority, int) or abs(priority) >= 1 << 31:
        raise InvalidParameterError(
            f"priority={reprlib.repr(priority)} must be a whole number above -2**31 below 2**31"
        )
    timeout = arguments.get("timeout")
    number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if timeout is not None and not (number and 0 < timeout <= sys.float_info.max):
        raise InvalidParameterError(
            f"timeout={reprlib.repr(timeout)} must be a number of seconds above 0, or None"
        )
