"""How long answers become, learnt from those that come."""

from __future__ import annotations

import math
from bisect import bisect_right

MEMORY = 256
"""Ends of answers after which an older one counts 1/e."""

USUAL_LENGTH = 256.0
"""Tokens of an answer before any has been seen; believed as one answer is."""

_SHRINKAGE = 64.0  # tokens of a stretch before its own chance of an end is believed
# Where the chance of an end may change: two stretches an octave, up to a million tokens.
_EDGES = (0, 4, *(width << octave for octave in range(18) for width in (8, 12)))


class AnswerLengths:
    """The chance that a token is an answer's last, by how many came before it.

    Counts ends over tokens, stretch by stretch. Answers that still run, were cut off by their limit
    or left by their client count as far as they came and without an end, so short answers, which
    end first, do not make all seem short (the estimate of Kaplan and Meier, over stretches).
    """

    def __init__(self) -> None:
        self._ends = [0.0] * len(_EDGES)
        self._tokens = [0.0] * len(_EDGES)
        self._weight = 1.0  # of what is new; grows, so that the old counts less
        self._hazards: list[float] | None = None  # summed up to each edge; None: to be made
        self._rates: list[float] = []  # of each stretch

    def observe(self, start: int, stop: int, *, ended: bool) -> None:
        """Notes that an answer of ``start`` tokens has ``stop`` now.

        ``ended``: there it ended by itself, not by its limit.
        """
        place = bisect_right(_EDGES, start) - 1
        position = start
        while position < stop:
            end = _EDGES[place + 1] if place + 1 < len(_EDGES) else stop
            self._tokens[place] += (min(end, stop) - position) * self._weight
            position = min(end, stop)
            place += 1
        if ended and stop > 0:
            self._ends[bisect_right(_EDGES, stop - 1) - 1] += self._weight
            self._weight *= 1 + 1 / MEMORY
            self._hazards = None
            if self._weight > 1e9:
                self._rescale()

    def _rescale(self) -> None:
        self._ends = [value / self._weight for value in self._ends]
        self._tokens = [value / self._weight for value in self._tokens]
        self._weight = 1.0

    def remainder(self, sampled: int, limit: int, quantile: float) -> int:
        """Tokens, 1 at least, that an answer of ``sampled`` tokens still gets.

        ``limit``: those it may have. ``quantile``: 0 to below 1, of all such answers.
        """
        hazards = self._summed()
        place = min(bisect_right(_EDGES, sampled), len(_EDGES)) - 1
        target = hazards[place] + self._rates[place] * (sampled - _EDGES[place])
        target -= math.log1p(-quantile)
        place = bisect_right(hazards, target) - 1
        length = _EDGES[place] + (target - hazards[place]) / self._rates[place]
        return max(min(math.ceil(length), limit) - sampled, 1)

    def mean_remainder(self, sampled: int, limit: int) -> float:
        """The mean of :meth:`remainder`, from a hundred quantiles."""
        return sum(self.remainder(sampled, limit, (i + 0.5) / 100) for i in range(100)) / 100

    def _summed(self) -> list[float]:
        """Minus the logarithm of the share of answers that reach each edge."""
        if self._hazards is None:
            prior = self._weight
            overall = (sum(self._ends) + prior) / (sum(self._tokens) + prior * USUAL_LENGTH)
            shrinkage = prior * _SHRINKAGE
            self._rates, total, hazards = [], 0.0, []
            for i, (ends, tokens) in enumerate(zip(self._ends, self._tokens, strict=True)):
                chance = (ends + shrinkage * overall) / (tokens + shrinkage)
                self._rates.append(-math.log1p(-min(chance, 0.999)))
                hazards.append(total)
                if i + 1 < len(_EDGES):
                    total += self._rates[-1] * (_EDGES[i + 1] - _EDGES[i])
            self._hazards = hazards
        return self._hazards
