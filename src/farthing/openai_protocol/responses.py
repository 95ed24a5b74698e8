"""From finished requests to the bodies of responses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from farthing.engine.outputs import CompletionOutput, Logprob, RequestOutput
from farthing.engine.request import FinishReason
from farthing.errors import InvalidParameterError
from farthing.openai_protocol.chat import ChatRequest
from farthing.openai_protocol.completions import CompletionRequest
from farthing.openai_protocol.errors import RequestError, generation_error, request_error
from farthing.openai_protocol.logprobs import (
    TokenTexts,
    chat_logprobs,
    completion_logprobs,
    prompt_logprobs,
)


def chat_response(
    request: ChatRequest,
    output: RequestOutput,
    *,
    response_id: str,
    created: int,
    model: str,
    texts: TokenTexts,
    system_fingerprint: str | None,
    timeout: float | None = None,
) -> dict[str, Any]:
    """The body of ``chat.completion``. ``created``: seconds since 1970.

    Raises :class:`RequestError`: the request failed (500), or its time was over (504).
    """
    _refuse_failed(output, timeout)
    choices = []
    for answer in output.outputs:
        logprobs = None
        if answer.logprobs is not None:
            logprobs = chat_logprobs(
                answer.logprobs,
                request.top_logprobs or 0,
                texts,
                as_ids=bool(request.return_tokens_as_token_ids),
            )
        choices.append(
            {
                "index": answer.index,
                "message": {"role": "assistant", "content": answer.text, "refusal": None},
                "logprobs": logprobs,
                **_end(answer),
                **({"token_ids": answer.token_ids} if request.return_token_ids else {}),
            }
        )
    body = {
        "id": response_id,
        "object": "chat.completion",
        "created": created,
        "model": model,
        "choices": choices,
        "usage": usage([output]),
        "system_fingerprint": system_fingerprint,
    }
    if request.prompt_logprobs is not None:
        body["prompt_logprobs"] = prompt_logprobs(output.prompt_logprobs or [])
    if request.return_token_ids:
        body["prompt_token_ids"] = output.prompt_token_ids
    return body


def completion_response(
    request: CompletionRequest,
    prompts: Sequence[str | list[int]],
    outputs: Sequence[RequestOutput],
    *,
    response_id: str,
    created: int,
    model: str,
    texts: TokenTexts,
    system_fingerprint: str | None,
    timeout: float | None = None,
) -> dict[str, Any]:
    """The body of ``text_completion``: the answers to each of ``prompts``, in their order.

    ``outputs`` belong to the prompts one by one. Raises as :func:`chat_response`.
    """
    choices: list[dict[str, Any]] = []
    for prompt, output in zip(prompts, outputs, strict=True):
        _refuse_failed(output, timeout)
        for answer in output.outputs:
            choice = _completion_choice(request, prompt, output, answer, texts)
            choices.append({"index": len(choices), **choice})
    return {
        "id": response_id,
        "object": "text_completion",
        "created": created,
        "model": model,
        "choices": choices,
        "usage": usage(outputs, only_prompts=request.only_echo),
        "system_fingerprint": system_fingerprint,
    }


def usage(outputs: Sequence[RequestOutput], *, only_prompts: bool = False) -> dict[str, Any]:
    """Tokens of a response: each prompt once, all that was sampled for it."""
    completion = sum(len(answer.token_ids) for output in outputs for answer in output.outputs)
    return usage_of(
        sum(len(output.prompt_token_ids) for output in outputs),
        0 if only_prompts else completion,
        sum(map(cached_tokens, outputs)),
    )


def usage_of(prompt: int, completion: int, cached: int) -> dict[str, Any]:
    """``usage`` of so many tokens; ``cached`` are among those of the prompt.

    No tokens are told apart as reasoning: all are of the answer.
    """
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def cached_tokens(output: RequestOutput) -> int:
    """Tokens of the prompt that were not computed, as an earlier request had left them."""
    return output.metrics.cached_tokens


def _refuse_failed(output: RequestOutput, timeout: float | None) -> None:
    if output.error is not None:
        if output.invalid_request:
            raise request_error(InvalidParameterError(output.error))
        raise generation_error(output.error)
    for answer in output.outputs:
        if (failure := failure_of(answer.finish_reason, timeout)) is not None:
            raise failure


def failure_of(
    finish_reason: FinishReason | None, timeout: float | None = None
) -> RequestError | None:
    """The error of an answer that ended so, or None; ``timeout``: the seconds that it was given."""
    if finish_reason in ("stop", "length"):
        return None
    if finish_reason == "timeout":
        given = "the time it was given" if timeout is None else f"{timeout:g} s (--request-timeout)"
        return RequestError(
            f"the answer was not finished within {given}",
            status=504,
            type="server_error",
            code="timeout",
        )
    return generation_error(f"the answer ended by {finish_reason}")


def echoed(prompt: str | list[int], texts: TokenTexts) -> str:
    """The text of a completion's prompt, as it was given."""
    return prompt if isinstance(prompt, str) else texts.decode(prompt, skip_special=False)


def _end(answer: CompletionOutput) -> dict[str, Any]:
    return {"finish_reason": answer.finish_reason, "stop_reason": answer.stop_reason}


def _completion_choice(
    request: CompletionRequest,
    prompt: str | list[int],
    output: RequestOutput,
    answer: CompletionOutput,
    texts: TokenTexts,
) -> dict[str, Any]:
    text, tokens = answer.text, answer.token_ids
    entries: list[dict[int, Logprob] | None] = [*(answer.logprobs or [])]
    end = _end(answer)
    if request.only_echo:
        text, tokens, entries = "", [], []
        end = {"finish_reason": "length", "stop_reason": None}
    if request.echo:
        text = echoed(prompt, texts) + text
        tokens = [*output.prompt_token_ids, *tokens]
        entries = [*(output.prompt_logprobs or []), *entries]
    logprobs = None
    if request.logprobs is not None:
        logprobs = completion_logprobs(
            tokens,
            entries,
            request.logprobs,
            texts,
            as_ids=bool(request.return_tokens_as_token_ids),
        )
    choice: dict[str, Any] = {"text": text, "logprobs": logprobs, **end}
    if request.prompt_logprobs is not None:
        choice["prompt_logprobs"] = prompt_logprobs(output.prompt_logprobs or [])
    if request.return_token_ids:
        choice["token_ids"] = [] if request.only_echo else answer.token_ids
        choice["prompt_token_ids"] = output.prompt_token_ids
    return choice
