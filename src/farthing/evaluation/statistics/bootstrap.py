"""The mean of values that depend on their neighbours."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from farthing.evaluation.statistics.quantiles import normal_cdf, student_quantile

_PIECE = 1 << 20  # draws in memory at a time


def exponential(value: float) -> float:
    """``exp``, infinite where no float is large enough: of a model that was destroyed."""
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


@dataclass(frozen=True, slots=True)
class Interval:
    """A number, between which bounds it lies, and its standard error."""

    value: float
    low: float
    high: float
    standard_error: float

    def times(self, factor: float) -> Interval:
        """The interval in another unit; ``factor`` is positive."""
        return Interval(
            self.value * factor,
            self.low * factor,
            self.high * factor,
            self.standard_error * factor,
        )

    def exponential(self) -> Interval:
        """``exp`` of the interval; of its standard error to first order."""
        value = exponential(self.value)
        low, high = exponential(self.low), exponential(self.high)
        return Interval(value, low, high, value * self.standard_error)


def block_length(n: int) -> int:
    """Neighbours that are drawn together: the cube root of ``n``, rounded up.

    Of that order is what makes the error of an estimated variance least (Künsch 1989; Hall,
    Horowitz and Jing 1995): 13 of 2,048 tokens, 21 of 8,192.
    """
    length = 1
    while length**3 < n:
        length += 1
    return length


def bootstrap_mean(
    values: NDArray[np.float64],
    *,
    block: int | None = None,
    confidence: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> Interval:
    """Mean of a series (n,) and its bootstrap interval, with what neighbours share kept.

    Of differences between two models token by token it is the paired comparison: ``exponential``
    of it is the ratio of their perplexities. The same values and seed give the same interval.

    Circular blocks (Politis and Romano 1992): a resample is made of runs of ``block`` values
    (:func:`block_length` of n if None) that begin anywhere and go on at the beginning behind the
    end; the last is cut so that n are drawn. Percentiles are taken a little farther out, by what
    Student's quantile and the divisor add for so few blocks (Hesterberg 2015). The
    standard error is that of the resampling itself, by its formula rather than from the draws.

    Raises ``ValueError`` for fewer than two values, and for a ``block`` that is not from 1 to n/2.
    """
    n = len(values)
    if n < 2:
        raise ValueError(f"an interval takes two values at least, not {n}")
    block = min(block_length(n), n // 2) if block is None else block
    if not 1 <= block <= n // 2:
        raise ValueError(f"block={block}: from 1 to {n // 2}, half of the values")
    blocks = -(-n // block)
    centre = float(values.mean())
    if not math.isfinite(centre):
        return Interval(centre, math.nan, math.nan, math.nan)
    # Sums are of deviations, whose rounding is that of the deviations.
    whole, last = _sums(values - centre, block), _sums(values - centre, n - (blocks - 1) * block)
    widening = math.sqrt(blocks / (blocks - 1))
    error = math.sqrt((blocks - 1) * float(whole.var()) + float(last.var())) / n
    if error == 0:
        return Interval(centre, centre, centre, 0.0)
    outside = normal_cdf(widening * student_quantile((1 - confidence) / 2, blocks - 1))
    means = _resampled(whole, last, blocks, resamples, np.random.default_rng(seed)) / n
    low, high = np.quantile(means, [outside, 1 - outside])
    return Interval(centre, centre + float(low), centre + float(high), widening * error)


def _sums(values: NDArray[np.float64], length: int) -> NDArray[np.float64]:
    """Sums of the ``length`` values from each place on, around the end, (n,)."""
    n = len(values)
    running = np.concatenate([[0.0], np.cumsum(np.concatenate([values, values[: length - 1]]))])
    return np.asarray(running[length : length + n] - running[:n])


def _resampled(
    whole: NDArray[np.float64],
    last: NDArray[np.float64],
    blocks: int,
    resamples: int,
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    """Sums of resamples, (resamples,)."""
    sums = np.empty(resamples)
    piece = max(1, _PIECE // blocks)
    for start in range(0, resamples, piece):
        stop = min(start + piece, resamples)
        places = rng.integers(0, len(whole), (stop - start, blocks), np.int32)
        sums[start:stop] = whole[places[:, 1:]].sum(axis=1) + last[places[:, 0]]
    return sums
