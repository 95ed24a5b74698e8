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
    form = request.params.structured_outputs
    place = f"token {len(request.output_token_ids) + 1} of the answer"
    if form is not None and request.grammar is not None and request.grammar.error is not None:
        return InvalidParameterError(f"{form.called}: {place}: {request.grammar.error}")
    if draw.token == NOTHING_ALLOWED:
        return InvalidParameterError(
            f"{', '.join(_forbidding(request))}: no token is allowed as {place}"
        )
    return FarthingError(
        f"the model's logits are not finite after {request.num_tokens} tokens; its weights or this "
        "prompt overflow"
    )


def _forbidding(request: Request) -> list[str]:
    """Names of the parameters that keep tokens from being drawn."""
    params = request.params
    form = params.structured_outputs
    names = [] if form is None else [form.called]
    if params.allowed_token_ids is not None:
        names.append("allowed_token_ids")
    if params.bad_words:
        names.append("bad_words")
    if len(request.output_token_ids) < params.min_tokens:
        names.append("min_tokens")
    return names
