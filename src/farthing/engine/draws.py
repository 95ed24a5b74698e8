"""What the logits of a step gave, and what it means when they gave nothing."""

from __future__ import annotations

from dataclasses import dataclass, field

from farthing.engine.request import Request
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


def problem_of(draw: Draw) -> str:
    """Why a request cannot go on, in one line."""
    request = draw.request
    if request.grammar is not None and request.grammar.error is not None:
        return (
            f"request {request.request_id}: structured_outputs, after "
            f"{len(request.output_token_ids)} tokens: {request.grammar.error}"
        )
    if draw.token == NOTHING_ALLOWED:
        return (
            f"request {request.request_id}: no token is allowed after {request.num_tokens} tokens; "
            "what its parameters forbid leaves none"
            + ("" if request.grammar is None else " of those its grammar asks for")
        )
    return (
        f"request {request.request_id}: the model's logits are not finite after "
        f"{request.num_tokens} tokens; its weights or this prompt overflow"
    )
