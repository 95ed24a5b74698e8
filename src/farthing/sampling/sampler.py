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
    all. ``controls``: filters, penalties and what else edits the logits; None for none of them.
    """

    temperature: float  # 0: greedy
    seed: int
    position: int  # of the token that is drawn, in its sequence
    choice: int = 0
    allowed: NDArray[np.uint32] | None = None
    controls: _native.Controls | None = None


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
            [row.controls for row in rows],
        )
        return [int(token) for token in tokens]

    def logprobs(
        self,
        logits: NDArray[np.float32],
        indices: Sequence[int],
        chosen: Sequence[int],
        counts: Sequence[int],
    ) -> list[list[TokenLogprob] | None]:
        """Of each row ``indices[i]`` of ``logits`` (any, vocab) the likeliest tokens.

        The ``chosen[i]`` token stands first, then the first ``counts[i]`` by (value descending, id
        ascending), the chosen one not again. From the floats that the kernels made, whatever
        parameters do to them afterwards. None for a row with a NaN or without a finite maximum.
        """
        width = logits.shape[1]
        values, ranks, tokens, others = self._native.logprobs(
            logits,
            np.array(indices, np.int32),
            np.array(chosen, np.int32),
            np.array([min(count, width) for count in counts], np.int32),
        )
        rows = zip(
            chosen,
            counts,
            values.tolist(),
            ranks.tolist(),
            tokens.tolist(),
            others.tolist(),
            strict=True,
        )
        return [
            None if rank == 0 else _entries(token, value, rank, likeliest[:count], those[:count])
            for token, count, value, rank, likeliest, those in rows
        ]


def _entries(
    chosen: int, value: float, rank: int, likeliest: list[int], values: list[float]
) -> list[TokenLogprob]:
    return [
        TokenLogprob(chosen, value, rank),
        *(
            TokenLogprob(token, other, place)
            for place, (token, other) in enumerate(zip(likeliest, values, strict=True), 1)
            if token != chosen
        ),
    ]
