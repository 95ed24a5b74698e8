"""The figures of an evaluation, as plain data."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from farthing.evaluation.agreement import Agreement, path_agreement
from farthing.evaluation.divergence import Scores
from farthing.evaluation.evaluate import Evaluation
from farthing.evaluation.measurement import Measurement
from farthing.evaluation.paths import Paths
from farthing.evaluation.size import Size
from farthing.evaluation.speed import Speed, StepTime
from farthing.evaluation.statistics import (
    Interval,
    Proportion,
    bootstrap_mean,
    exponential,
    wilson,
)


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

    mean: Interval
    median: float
    p99: float
    maximum: float


@dataclass(frozen=True, slots=True)
class TextFigures:
    """What a model predicts of the text; intervals are of 95 %. The last three: of candidates."""

    nll: Interval  # mean negative log likelihood, nats a token
    perplexity: Interval
    median_perplexity: float  # exp of the median: of the token in the middle
    bits_per_byte: Interval
    right: Proportion  # tokens that the model finds likeliest
    perplexity_ratio: Interval | None  # to the reference's, token by token
    kl: Divergence | None
    same_top: Proportion | None  # tokens where model and reference find the same one likeliest


@dataclass(frozen=True, slots=True)
class BatteryFigures:
    """Questions answered right."""

    right: Proportion
    right_with_penalty: Proportion | None
    wrong: tuple[int, ...]  # numbers of the questions, from 0
    answers: tuple[str, ...]
    answers_with_penalty: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class SpeedFigures:
    """Decoding; seconds of a step."""

    alone: StepTime
    knee: StepTime
    steps: tuple[StepTime, ...]


@dataclass(frozen=True, slots=True)
class ModelFigures:
    """What is known of a model."""

    name: str
    scheme: str | None
    size: Size
    text: TextFigures
    paths: Agreement | None
    battery: BatteryFigures | None
    speed: SpeedFigures | None


def token_counts(found: Evaluation) -> TokenCounts:
    """What of the text was scored."""
    windows = found.windows
    return TokenCounts(
        windows.context,
        len(windows.tokens),
        windows.available,
        windows.targets.size,
        found.bytes_scored,
    )


def summarize(measured: Measurement, found: Evaluation) -> ModelFigures:
    """The figures of ``measured``, one of the models of ``found``."""
    return ModelFigures(
        measured.name,
        measured.scheme,
        measured.size,
        _text(measured.scores, found.bytes_scored),
        _agreement(measured.tokens, found.paths),
        _battery(measured),
        _speed(measured.speed),
    )


def _text(scores: Scores, bytes_scored: int) -> TextFigures:
    nll = bootstrap_mean(scores.nll)
    ratio = kl = same_top = None
    if scores.reference_nll is not None:
        ratio = bootstrap_mean(scores.nll - scores.reference_nll).exponential()
    if scores.kl is not None:
        median, p99 = np.quantile(scores.kl, [0.5, 0.99])
        kl = Divergence(
            bootstrap_mean(scores.kl), float(median), float(p99), float(scores.kl.max())
        )
    if scores.same_top is not None:
        same_top = proportion(scores.same_top)
    return TextFigures(
        nll,
        nll.exponential(),
        exponential(float(np.median(scores.nll))),
        nll.times(len(scores.nll) / bytes_scored / math.log(2)),
        proportion(scores.right),
        ratio,
        kl,
        same_top,
    )


def proportion(each: NDArray[np.bool_]) -> Proportion:
    """The share of those that are true."""
    return wilson(int(each.sum()), len(each))


def _agreement(tokens: NDArray[np.int32] | None, paths: Paths | None) -> Agreement | None:
    if tokens is None or paths is None:
        return None
    return path_agreement(tokens == paths.said, paths.path_of)


def _battery(measured: Measurement) -> BatteryFigures | None:
    answers, penalized = measured.answers, measured.answers_with_penalty
    if answers is None:
        return None
    return BatteryFigures(
        proportion(answers.right),
        None if penalized is None else proportion(penalized.right),
        tuple(int(i) for i in np.flatnonzero(~answers.right)),
        answers.texts,
        None if penalized is None else penalized.texts,
    )


def _speed(speed: Speed | None) -> SpeedFigures | None:
    return None if speed is None else SpeedFigures(speed.alone, speed.knee, speed.steps)
