"""How long a step takes, learnt from the steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Protocol

MEMORY = 16
"""Steps of one kind after which an older one counts 1/e."""

HALF_LIFE = 256
"""Steps of other kinds in which what is known of one kind loses half of its weight."""

LEAST_WEIGHT = 0.02
"""Share of its weight that it keeps: for prompts there may be nothing newer."""

OUTLIER = 3.0
"""Mean deviations from the prediction beyond which more counts no more."""

LEAST_SECONDS = 1e-6
"""What a step takes at least."""

_REFIT_EVERY = 8  # steps
_FEW = 8  # steps of a kind that may all have been slow by chance
_FAMILIAR = 32  # steps after which a prediction is better than nothing
_FIRST_GUESS = (0.02, 0.002, 0.002)  # of a small model on few cores
# Where the steps seen cannot tell the three apart: a pass reads all weights whatever it computes, a
# row of either kind is arithmetic. So one row says what a pass costs, many say what a row does.
_STIFFNESS = (1.0, 8.0, 8.0)
_RIDGE = 1e-3


def first_guess(weight_bytes: int, threads: int, bandwidth: float) -> tuple[float, float, float]:
    """Coefficients, in seconds, to go by until there have been steps.

    A pass reads ``weight_bytes`` at ``bandwidth`` bytes a second (0.0: not measured, 20 GB/s); a
    row takes a thread 12.5 ps a byte of them, as 4-bit weights do on AVX2 (bench/LOG.md,
    2026-11-29); Python takes 0.2 ms a pass and 10 us a row.
    """
    row = 10e-6 + weight_bytes * 12.5e-12 / threads
    return 0.2e-3 + weight_bytes / (bandwidth or 20e9), row, row


class StepTimeModel(Protocol):
    """What admission asks of a model of time, be it learnt here or measured beforehand."""

    def observe(self, decode_rows: int, prefill_rows: int, seconds: float) -> None:
        """Notes a step."""

    def predict(self, decode_rows: int, prefill_rows: int) -> float:
        """Seconds, above 0, of a step of so many rows."""


@dataclass(slots=True)
class _Kind:
    """Means over steps of like size."""

    decode_rows: float
    prefill_rows: float
    seconds: float
    deviation: float
    count: int = 0
    last: int = 0  # the number of its last step


class LinearStepTimes:
    """``a + b * decode rows + c * prompt rows``, none of the three below 0, times a pace.

    Steps come in long runs of one kind, decoding alone above all, and plain recursive least squares
    with forgetting loses in such a run what it knew of the others. So each kind of step (rows by
    powers of two) keeps means of its own and forgets by its own steps; the coefficients are the
    non-negative least squares of relative errors over the kinds, a few dozen. A machine that has
    become slower or faster is so in all: the pace, actual to linear time over the last steps, says
    that at once, before the means of every kind do. An observation further from the prediction than
    three times the usual deviation counts as if it were just there (Huber's function): a hiccup
    moves little, and a change that lasts is followed, since the deviation grows with it.
    """

    def __init__(self, first_guess: tuple[float, float, float] = _FIRST_GUESS) -> None:
        """``first_guess``: the three coefficients, in seconds, before any step."""
        self.coefficients = first_guess
        self._kinds: dict[tuple[int, int], _Kind] = {}
        self._steps = 0
        self._pace = 1.0  # actual to linear time, of late

    def observe(self, decode_rows: int, prefill_rows: int, seconds: float) -> None:
        """Notes a step; one without rows or time says nothing."""
        if seconds <= 0 or decode_rows + prefill_rows <= 0:
            return
        seconds = max(seconds, LEAST_SECONDS)
        self._steps += 1
        name = decode_rows.bit_length(), prefill_rows.bit_length()
        kind = self._kinds.get(name)
        if kind is None:
            known = self._steps > _FAMILIAR
            usual = self.predict(decode_rows, prefill_rows) if known else seconds
            kind = self._kinds[name] = _Kind(decode_rows, prefill_rows, usual, usual / 4)
        elif kind.count < _FEW and seconds < kind.seconds / 2:
            kind.seconds, kind.count = seconds, 0  # the first were hiccups: nothing is faster
        kind.count += 1
        kind.last = self._steps
        rate = 1 / min(kind.count, MEMORY)
        linear = self._linear(decode_rows, prefill_rows)
        # Before there is a model, the mean of its kind is the prediction.
        predicted = linear * self._pace if self._steps > _FAMILIAR else kind.seconds
        bound = OUTLIER * kind.deviation
        residual = min(max(seconds - predicted, -bound), bound)
        kind.deviation += (abs(residual) - kind.deviation) / MEMORY
        kind.deviation = max(kind.deviation, kind.seconds * 0.01)
        kind.decode_rows += rate * (decode_rows - kind.decode_rows)
        kind.prefill_rows += rate * (prefill_rows - kind.prefill_rows)
        kind.seconds += rate * (predicted + residual - kind.seconds)
        if self._steps > _FAMILIAR:
            self._pace += ((predicted + residual) / linear - self._pace) / MEMORY
        if self._steps <= _FAMILIAR or self._steps % _REFIT_EVERY == 0:
            self._fit()

    def predict(self, decode_rows: int, prefill_rows: int) -> float:
        """Seconds of a step of so many rows."""
        return max(self._linear(decode_rows, prefill_rows) * self._pace, LEAST_SECONDS)

    def _linear(self, decode_rows: int, prefill_rows: int) -> float:
        a, b, c = self.coefficients
        return max(a + b * decode_rows + c * prefill_rows, LEAST_SECONDS)

    def _fit(self) -> None:
        matrix = [[0.0] * 3 for _ in range(3)]
        vector = [0.0] * 3
        total = 0.0
        for kind in self._kinds.values():
            age = self._steps - kind.last
            weight = max(0.5 ** (age / HALF_LIFE), LEAST_WEIGHT) * min(kind.count, MEMORY)
            t = kind.seconds
            x = (1 / t, kind.decode_rows / t, kind.prefill_rows / t)
            total += weight / t**2
            for i in range(3):
                scaled = weight * x[i]
                vector[i] += scaled
                row = matrix[i]
                for j in range(i, 3):
                    row[j] += scaled * x[j]
        for i in range(3):
            matrix[i][i] += _RIDGE * total * _STIFFNESS[i] ** 2
            for j in range(i):
                matrix[i][j] = matrix[j][i]
        self.coefficients = non_negative_least_squares(matrix, vector)


def non_negative_least_squares(
    matrix: Sequence[Sequence[float]], vector: Sequence[float]
) -> tuple[float, float, float]:
    """The ``x >= 0`` (3) that minimizes ``x A x / 2 - b x``; ``A`` (3, 3) is positive definite."""
    best, least = (0.0, 0.0, 0.0), 0.0
    for size in (3, 2, 1):
        for active in combinations(range(3), size):
            found = _solve(
                [[matrix[i][j] for j in active] for i in active], [vector[i] for i in active]
            )
            if min(found) < 0:
                continue
            value = -sum(x * vector[i] for x, i in zip(found, active, strict=True)) / 2
            if value < least:
                filled = [0.0, 0.0, 0.0]
                for x, i in zip(found, active, strict=True):
                    filled[i] = x
                best, least = (filled[0], filled[1], filled[2]), value
        if size == 3 and least < 0:
            return best  # nothing held it back: no smaller set does better
    return best


def _solve(matrix: list[list[float]], vector: list[float]) -> list[float]:
    """Gaussian elimination; a positive definite matrix needs no exchange of rows."""
    size = len(vector)
    for k in range(size):
        for i in range(k + 1, size):
            factor = matrix[i][k] / matrix[k][k]
            for j in range(k, size):
                matrix[i][j] -= factor * matrix[k][j]
            vector[i] -= factor * vector[k]
    for k in reversed(range(size)):
        vector[k] -= sum(matrix[k][j] * vector[j] for j in range(k + 1, size))
        vector[k] /= matrix[k][k]
    return vector
