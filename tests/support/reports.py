"""A report of models that never were: all its figures are those of made up tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from farthing.evaluation.divergence import Scores
from farthing.evaluation.evaluate import Evaluation, Memory
from farthing.evaluation.measurement import Measurement
from farthing.evaluation.paths import Paths
from farthing.evaluation.report import Report
from farthing.evaluation.settings import Settings
from farthing.evaluation.size import Size
from farthing.evaluation.speed import Speed, StepTime
from farthing.evaluation.text import Windows

N = 2000  # tokens
POSITIONS = 100


@dataclass(frozen=True, slots=True)
class Made:
    """A candidate: its size, and what it loses of :data:`N` tokens and :data:`POSITIONS`."""

    name: str
    mib: int
    kl: float  # mean, nats
    lost: int  # tokens that the reference finds likeliest and it does not
    gained: int = 2
    other_tokens: int = 5  # than the reference's


SCHEMES = (
    Made("nf4g64", 320, 0.100, 30, 20, 11),
    Made("w8row", 603, 0.003, 3, 2, 1),
    Made("w6g64", 470, 0.007, 4, 2, 3),
    Made("w5g64", 395, 0.023, 6, 3, 4),
    Made("w4g64", 320, 0.130, 40, 20, 12),
    Made("w4g128", 311, 0.185, 90, 10, 14),
    Made("w4tensor", 303, 13.5, 560, 1, 100),
)
"""As a small model loses. Not in the order of their sizes."""


def make_report(
    made: Sequence[Made] = SCHEMES,
    *,
    reference: bool = True,
    positions: bool = True,
    speed: bool = True,
    max_loss: float | None = None,
    model: str = "a model",
    margin: float = 0.01,
) -> Report:
    """A report of ``made`` beside a reference, or without one; of the first ``made`` then."""
    rng = np.random.default_rng(11)
    nll = rng.gamma(2.0, 1.5, N)
    right = np.arange(N) < 600
    tokens = rng.integers(0, 1000, (4, POSITIONS // 4), np.int32)
    lengths = np.full(4, POSITIONS // 4, np.int32)
    paths = Paths(np.zeros((4, 8), np.int32), tokens, lengths) if positions else None

    def measured(number: int, each: Made) -> Measurement:
        own = right.copy()
        own[: each.lost] = False
        own[600 : 600 + each.gained] = True
        kl = rng.gamma(2.0, each.kl / 2, N)
        beside = (nll, right, kl, own == right) if reference else ()
        said = None if paths is None else paths.said.copy()
        if said is not None:
            said[rng.permutation(POSITIONS)[: each.other_tokens]] += 1
        size = Size(each.mib << 20, each.mib << 20, each.mib / 75)
        speeds = made_speed(10.0 + number) if speed else None
        scores = Scores(nll + kl, own, *beside)
        return Measurement(each.name, None, size, scores, said, None, None, speeds)

    truth = Measurement(
        "reference",
        None,
        Size(1202 << 20, 1202 << 20, 16.0),
        Scores(nll, right),
        None if paths is None else paths.said,
        None,
        None,
        made_speed(5.0) if speed else None,
    )
    chosen = made if reference else made[:1]
    found = Evaluation(
        windows=Windows(np.zeros((1, 2 * N + 2), np.int32), 1),
        bytes_scored=3 * N,
        paths=paths if reference else None,
        reference=truth if reference else None,
        reference_is="itself" if reference else None,
        candidates=tuple(measured(number, each) for number, each in enumerate(chosen)),
        memory=Memory(0),
    )
    return Report.of(
        found,
        model=model,
        text="a text",
        battery=None,
        method="absmax",
        settings=Settings(),
        margin=margin,
        max_loss=max_loss,
    )


def made_speed(alone: float) -> Speed:
    """Of so many tokens/s alone; the knee is at a batch of 4."""
    return Speed(
        tuple(
            StepTime(batch, batch / rate, 0.9 * batch / rate, 1.5 * batch / rate, 5)
            for batch, rate in ((1, alone), (2, 1.8 * alone), (4, 3 * alone), (8, 3.1 * alone))
        )
    )
