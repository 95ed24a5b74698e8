"""The figures of an evaluation, as plain data."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from farthing.evaluation.evaluate import Evaluation, Memory
from farthing.evaluation.statistics import Estimate, Proportion, mean, wilson


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """What was scored."""

    context: int  # tokens of a window
    windows: int
    available_windows: int  # that the text has
    scored: int
    scored_bytes: int  # of text that the scored tokens stand for


@dataclass(frozen=True, slots=True)
class Divergence:
    """D(reference || model) of the next token's distribution, nats."""

    mean: Estimate
    median: float
    p99: float
    maximum: float


@dataclass(frozen=True, slots=True)
class Against:
    """How far the model is from the reference."""

    perplexity: Estimate  # of the reference
    perplexity_ratio: Estimate  # the model's to the reference's, token by token
    kl: Divergence
    same_top: Proportion  # tokens where both find the same one likeliest


@dataclass(frozen=True, slots=True)
class Summary:
    """Estimates are of the scored tokens, taken as independent."""

    tokens: TokenCounts
    nll: Estimate  # mean negative log likelihood, nats a token
    perplexity: Estimate
    bits_per_byte: Estimate
    against: Against | None
    memory: Memory


def summarize(found: Evaluation) -> Summary:
    """The figures of ``found``."""
    windows, scores = found.windows, found.scores
    count = len(scores.nll)
    nll = mean(scores.nll)
    return Summary(
        TokenCounts(
            windows.context, len(windows.tokens), windows.available, count, found.bytes_scored
        ),
        nll,
        nll.exponential(),
        nll.times(count / found.bytes_scored / math.log(2)),
        _against(found),
        found.memory,
    )


def _against(found: Evaluation) -> Against | None:
    scores = found.scores
    if scores.kl is None or scores.reference_nll is None or scores.same_top is None:
        return None
    median, p99 = np.quantile(scores.kl, [0.5, 0.99])
    return Against(
        mean(scores.reference_nll).exponential(),
        mean(scores.nll - scores.reference_nll).exponential(),
        Divergence(mean(scores.kl), float(median), float(p99), float(scores.kl.max())),
        wilson(int(scores.same_top.sum()), len(scores.same_top)),
    )
