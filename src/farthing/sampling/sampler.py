"""Chooses the next token of each row of logits, in native code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from farthing import _native

NOT_FINITE = -1
"""In place of a token: a logit of the row is NaN, or none is finite."""

NOTHING_ALLOWED = -2
"""In place of a token: what the request forbids leaves no token."""


@dataclass(frozen=True, slots=True, eq=False)
class SampledRow:
    """How the token of one row is drawn: a function of the logits and these numbers alone.

    ``allowed``: bit i % 32 of word i // 32 set allows token i, ceil(vocab / 32) words; None allows
    all.
    """

    temperature: float  # 0: greedy
    seed: int
    position: int  # of the token that is drawn, in its sequence
    choice: int = 0
    allowed: NDArray[np.uint32] | None = None


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Log probability of a token and its rank, 1 for the likeliest."""

    token_id: int
    logprob: float
    rank: int


class Sampler:
    """Draws tokens on a team of threads, which it shares with whoever computed the logits."""

    def __init__(self, threads: _native.ThreadPool | None = None) -> None:
        self._native = _native.RowSampler(threads)

    def draw(
        self,
        logits: NDArray[np.float32],
        rows: Sequence[SampledRow],
        indices: Sequence[int] | None = None,
    ) -> list[int]:
        """Draws one token for each of ``rows``, from row ``indices[i]`` of ``logits`` (any, vocab).

        Without ``indices`` rows and logits go in pairs. Greedy rows take the highest logit, the
        lowest id among equals. Others take the highest of logit / temperature plus Gumbel noise
        keyed by (seed, choice, position, token), so the draw does not depend on other rows. A row
        without a token gives ``NOT_FINITE`` or ``NOTHING_ALLOWED``.
        """
        tokens = self._native.draw(
            logits,
            np.arange(len(rows), dtype=np.int32)
            if indices is None
            else np.array(indices, np.int32),
            np.array([row.temperature for row in rows], np.float32),
            np.array([row.seed for row in rows], np.uint64),
            np.array([row.choice for row in rows], np.uint32),
            np.array([row.position for row in rows], np.uint32),
            [row.allowed for row in rows],
        )
        return [int(token) for token in tokens]


def top_logprobs(logits: NDArray[np.float32], chosen: int, n: int) -> list[TokenLogprob]:
    """The chosen token first, then the ``n`` likeliest, from the floats that sampling saw.

    ``logits``: one row (vocab,). Ordered by (value descending, id ascending).
    """
    log_sum = np.float32(_native.log_sum_exp(_native.isa(), logits))
    rank = int(np.count_nonzero(logits > logits[chosen])) + int(
        np.count_nonzero(logits[:chosen] == logits[chosen])
    )
    result = [TokenLogprob(chosen, float(logits[chosen] - log_sum), rank + 1)]
    n = min(n, len(logits))
    if n > 0:
        threshold = np.partition(logits, -n)[-n]
        candidates = np.flatnonzero(logits >= threshold)
        order = np.lexsort((candidates, -logits[candidates]))[:n]
        result += [
            TokenLogprob(int(token), float(logits[token] - log_sum), place + 1)
            for place, token in enumerate(candidates[order])
            if token != chosen
        ]
    return result
