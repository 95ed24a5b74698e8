"""From a request's parameters and tokens to how its next token is drawn."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from farthing import _native
from farthing.sampling.params import SamplingParams
from farthing.sampling.sampler import SampledRow
from farthing.sampling.vocabulary import SamplingVocabulary


class RequestSampler:
    """Draws of one request; follows the tokens it generates.

    ``end_token_ids``: the tokens that ``min_tokens`` holds off. ``choice``: which of several
    continuations of one prompt; each has noise of its own.

    Raises :class:`InvalidParameterError` for what the vocabulary does not have.
    """

    def __init__(
        self,
        params: SamplingParams,
        seed: int,
        prompt_token_ids: Sequence[int],
        end_token_ids: Collection[int],
        vocabulary: SamplingVocabulary,
        choice: int = 0,
    ) -> None:
        vocabulary.check(params)
        self._temperature = 0.0 if params.greedy else params.temperature
        self._seed = seed
        self._choice = choice
        self._prompt_tokens = len(prompt_token_ids)
        self._allowed = (
            None if params.allowed_token_ids is None else vocabulary.mask(params.allowed_token_ids)
        )
        self._controls = _controls(params, prompt_token_ids, end_token_ids, vocabulary)

    @property
    def takes_argmax(self) -> bool:
        """Whether every token is its logits' first by (value descending, id ascending)."""
        greedy = self._temperature == 0
        return greedy and self._allowed is None and self._controls is None

    def row(
        self, output_token_ids: Sequence[int], grammar: NDArray[np.uint32] | None = None
    ) -> SampledRow:
        """How the token after ``output_token_ids``, an extension of the last call's, is drawn.

        ``grammar``: mask of the tokens that the request's grammar allows, packed.
        """
        if self._controls is not None:
            for token in output_token_ids[self._controls.num_generated :]:
                self._controls.append(token)
        allowed = grammar
        if self._allowed is not None:
            allowed = self._allowed if grammar is None else self._allowed & grammar
        return SampledRow(
            self._temperature,
            self._seed,
            self._prompt_tokens + len(output_token_ids),
            self._choice,
            allowed=allowed,
            controls=self._controls,
        )


def _controls(
    params: SamplingParams,
    prompt: Sequence[int],
    end_token_ids: Collection[int],
    vocabulary: SamplingVocabulary,
) -> _native.Controls | None:
    """None where the parameters leave the logits and the candidates as they are."""
    dry = params.dry_multiplier > 0 and params.dry_penalty_last_n != 0
    edits = (
        *(params.repetition_penalty != 1, params.presence_penalty, params.frequency_penalty),
        *(dry, params.logit_bias, params.bad_words, params.min_tokens),
    )
    filters = (params.top_k > 0, params.top_p < 1, params.min_p > 0, params.typical_p < 1)
    # A greedy choice looks at no filter.
    if not any(edits) and (params.greedy or not any(filters)):
        return None
    return _native.Controls(
        vocabulary.size,
        list(prompt),
        top_k=max(params.top_k, 0),
        top_p=params.top_p,
        min_p=params.min_p,
        typical_p=params.typical_p,
        repetition=params.repetition_penalty,
        presence=params.presence_penalty,
        frequency=params.frequency_penalty,
        dry_multiplier=params.dry_multiplier if dry else 0.0,
        dry_base=params.dry_base,
        dry_allowed_length=params.dry_allowed_length,
        dry_last_n=params.dry_penalty_last_n,
        dry_breakers=vocabulary.breakers(tuple(params.dry_sequence_breakers)) if dry else None,
        bias=sorted((params.logit_bias or {}).items()),
        bad_words=vocabulary.sequences_of(params.bad_words or ()),
        end_tokens=sorted(end_token_ids),
        min_tokens=params.min_tokens,
    )
