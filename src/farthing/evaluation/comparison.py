"""Two models beside each other: paired figures, and what they say in words."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from farthing.evaluation.agreement import path_agreement
from farthing.evaluation.answers import Answers
from farthing.evaluation.evaluate import Evaluation
from farthing.evaluation.measurement import Measurement
from farthing.evaluation.statistics import (
    Equivalence,
    Interval,
    bootstrap_mean,
    equivalence,
    mcnemar,
    smallest_difference_seen,
)
from farthing.evaluation.verdicts import (
    agreement_difference_verdict,
    agreement_verdict,
    battery_verdict,
    equivalence_verdict,
    perplexity_verdict,
)


@dataclass(frozen=True, slots=True)
class Discordance:
    """Of ``total`` questions or positions, what one of two models alone gets right."""

    only_first: int
    only_second: int
    total: int
    p: float  # McNemar's, exact and two-sided
    smallest_seen: float | None  # share by which they had to differ to be found in 80 % of samples


@dataclass(frozen=True, slots=True)
class Verdicts:
    """A sentence for each instrument. None: it was not used."""

    perplexity: str
    next_token: str
    agreement: str | None
    battery: str | None
    battery_with_penalty: str | None


@dataclass(frozen=True, slots=True)
class Pair:
    """The ``first`` model against the ``second``, both on the same tokens and questions."""

    first: str
    second: str
    perplexity_ratio: Interval
    next_token: Discordance  # of the text, found likeliest
    equivalence: Equivalence  # of the shares of tokens of the text found likeliest
    agreement: Discordance | None  # of two candidates, positions at which they agree with the paths
    battery: Discordance | None
    battery_with_penalty: Discordance | None
    verdicts: Verdicts


def compare_all(found: Evaluation, margin: float) -> list[Pair]:
    """Every candidate against the reference, then every two candidates, in their order.

    ``margin`` is the difference, a share, that does not matter.
    """
    pairs = []
    if found.reference is not None:
        pairs = [_compare(each, found.reference, found, margin) for each in found.candidates]
    pairs += [_compare(*two, found, margin) for two in combinations(found.candidates, 2)]
    return pairs


def _compare(first: Measurement, second: Measurement, found: Evaluation, margin: float) -> Pair:
    log_ratio = bootstrap_mean(first.scores.nll - second.scores.nll)
    next_token = discordance(first.scores.right, second.scores.right)
    equivalent = equivalence(
        next_token.only_first, next_token.only_second, next_token.total, margin
    )
    agreement, agreement_in_words = _agreement(first, second, found)
    battery = _answers(first.answers, second.answers)
    penalized = _answers(first.answers_with_penalty, second.answers_with_penalty)
    return Pair(
        first.name,
        second.name,
        log_ratio.exponential(),
        next_token,
        equivalent,
        agreement,
        battery,
        penalized,
        Verdicts(
            perplexity_verdict(log_ratio),
            equivalence_verdict(equivalent),
            agreement_in_words,
            _battery_in_words(battery),
            _battery_in_words(penalized),
        ),
    )


def discordance(first: NDArray[np.bool_], second: NDArray[np.bool_]) -> Discordance:
    """What one of the two alone gets right, of the same questions."""
    only_first, only_second = int((first & ~second).sum()), int((second & ~first).sum())
    total = len(first)
    return Discordance(
        only_first,
        only_second,
        total,
        mcnemar(only_first, only_second),
        smallest_difference_seen(total, (only_first + only_second) / total),
    )


def _agreement(
    first: Measurement, second: Measurement, found: Evaluation
) -> tuple[Discordance | None, str | None]:
    """With the reference's paths; against the reference itself it is a share, not a difference."""
    paths = found.paths
    if paths is None or first.tokens is None or second.tokens is None:
        return None, None
    same = first.tokens == paths.said
    if second is found.reference:
        return None, agreement_verdict(path_agreement(same, paths.path_of).share)
    pair = discordance(same, second.tokens == paths.said)
    return pair, agreement_difference_verdict(pair.only_first, pair.only_second, pair.total)


def _answers(first: Answers | None, second: Answers | None) -> Discordance | None:
    if first is None or second is None:
        return None
    return discordance(first.right, second.right)


def _battery_in_words(pair: Discordance | None) -> str | None:
    return None if pair is None else battery_verdict(pair.only_first, pair.only_second, pair.total)
