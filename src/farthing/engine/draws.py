"""What the logits of a step gave, and what it means when they gave nothing."""

from __future__ import annotations

from dataclasses import dataclass, field

from farthing.engine.request import Request
from farthing.errors import FarthingError, InvalidParameterError
from farthing.sampling.sampler import NOTHING_ALLOWED, TokenLogprob


@dataclass(slots=True)
class Draw:
    """What the logits of one request gave in a step.

    ``token``: None if none was to be drawn; negative, as :meth:`Sampler.draw` says, if the request
    cannot go on. ``prompt_logprobs`` go on where the last step's ended.
    """

    request: Request
    token: int | None = None
    logprobs: list[TokenLogprob] | None = None
    prompt_logprobs: list[list[TokenLogprob]] = field(default_factory=list)


def problem_of(draw: Draw) -> FarthingError:
    """Why a request cannot go on: :class:`InvalidParameterError` if what it asked for is why."""
    request = draw.request
    generated = len(request.output_token_ids)
    if request.grammar is not None and request.grammar.error is not None:
        return InvalidParameterError(
            f"structured_outputs: token {generated + 1} of the answer: {request.grammar.error}"
        )
    if draw.token == NOTHING_ALLOWED:
        return InvalidParameterError(
            f"{', '.join(_forbidding(request, generated))}: no token is allowed as token "
            f"{generated + 1} of the answer"
        )
    return FarthingError(
        f"the model's logits are not finite after {request.num_tokens} tokens; its weights or this "
        "prompt overflow"
    )


def _forbidding(request: Request, generated: int) -> list[str]:
    """Names of the parameters that keep tokens from being drawn."""
    params = request.params
    forbid = {
        "structured_outputs": request.grammar is not None,
        "allowed_token_ids": params.allowed_token_ids is not None,
        "bad_words": bool(params.bad_words),
        "min_tokens": generated < params.min_tokens,
    }
    return [name for name, does in forbid.items() if does]
