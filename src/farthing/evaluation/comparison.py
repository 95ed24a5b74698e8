"""Two models beside each other: paired figures, and what they say in words."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

from farthing.evaluation.agreement import compare_agreement, path_agreement
from farthing.evaluation.answers import Answers
from farthing.evaluation.discordance import Discordance
from farthing.evaluation.evaluate import Evaluation
from farthing.evaluation.measurement import Measurement
from farthing.evaluation.statistics import (
    Equivalence,
    Interval,
    bootstrap_mean,
    equivalence,
)
from farthing.evaluation.verdicts import (
    agreement_difference_verdict,
    agreement_verdict,
    battery_verdict,
    equivalence_verdict,
    perplexity_verdict,
)


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
    next_token = Discordance.between(first.scores.right, second.scores.right)
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
    pair = compare_agreement(same, second.tokens == paths.said, paths.path_of)
    return pair, agreement_difference_verdict(pair)


def _answers(first: Answers | None, second: Answers | None) -> Discordance | None:
    if first is None or second is None:
        return None
    return Discordance.between(first.right, second.right)


def _battery_in_words(pair: Discordance | None) -> str | None:
    return None if pair is None else battery_verdict(pair)
