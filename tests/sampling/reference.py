"""What the parameters mean, in plain float64 and plain loops: no code or order of the kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mpmath
import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]

ALMOST_NEVER = 1e-5
"""Significance of every test of frequencies: a right kernel fails one in a hundred thousand. Seeds
are fixed, so each of these was decided once."""


def edited(
    logits: Sequence[float],
    prompt: Sequence[int],
    output: Sequence[int],
    *,
    repetition_penalty: float = 1.0,
    presence_penalty: float = 0.0,
    frequency_penalty: float = 0.0,
    dry: dict[int, float] | None = None,
    logit_bias: dict[int, float] | None = None,
    forbidden: Sequence[int] = (),
) -> Doubles:
    """The logits after penalties, bias and bans."""
    x = np.array(logits, np.float64)
    for token in range(len(x)):
        if token in prompt or token in output:
            if x[token] > 0:
                x[token] /= repetition_penalty
            else:
                x[token] *= repetition_penalty
        count = list(output).count(token)
        x[token] -= frequency_penalty * count + presence_penalty * (count > 0)
        x[token] -= (dry or {}).get(token, 0.0)
        x[token] += (logit_bias or {}).get(token, 0.0)
    x[list(forbidden)] = -np.inf
    return x


def probabilities(
    logits: Doubles,
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    typical_p: float = 1.0,
) -> Doubles:
    """Of every token, each filter on the normalized rest of the one before it."""
    p = _softmax(logits / temperature)
    if top_k > 0:
        p = _only(p, _order(-p)[:top_k])
    if top_p < 1:
        p = _only(p, _share(p, _order(-p), top_p))
    if min_p > 0:
        p = _only(p, np.flatnonzero(p >= min_p * p.max()))
    if typical_p < 1:
        with np.errstate(divide="ignore", invalid="ignore"):
            information = -np.log(p)
            entropy = np.where(p > 0, p * information, 0).sum()
        distance = np.where(p > 0, np.abs(information - entropy), np.inf)
        p = _only(p, _share(p, np.lexsort((np.arange(p.size), -p, distance)), typical_p))
    return p


def _softmax(x: Doubles) -> Doubles:
    e: Doubles = np.exp(x - x.max())
    return e / e.sum()


def _order(key: Doubles) -> NDArray[np.int64]:
    return np.lexsort((np.arange(key.size), key))


def _share(p: Doubles, order: NDArray[np.int64], share: float) -> NDArray[np.int64]:
    return order[: int(np.searchsorted(p[order].cumsum(), share * (1 - 1e-12))) + 1]


def _only(p: Doubles, ids: NDArray[np.int64]) -> Doubles:
    kept = np.zeros_like(p)
    kept[ids] = p[ids]
    return kept / kept.sum()


def dry_penalties(
    tokens: Sequence[int],
    *,
    multiplier: float,
    base: float,
    allowed_length: int,
    last_n: int = -1,
    breakers: Sequence[Sequence[int]] = (),
) -> dict[int, float]:
    """By token, in quadratic time and more: every earlier place is compared with the end."""
    window = list(tokens if last_n < 0 else tokens[max(len(tokens) - last_n, 0) :])
    limit = len(window)
    for begin in range(len(window) - 1, -1, -1):
        lengths = [len(b) for b in breakers if window[begin : begin + len(b)] == list(b)]
        if lengths:
            limit = len(window) - begin - max(lengths)
            break
    longest: dict[int, int] = {}
    for place in range(1, len(window)):  # window[place] followed what may repeat
        length = 0
        while length < place and window[place - 1 - length] == window[-1 - length]:
            length += 1
        length = min(length, limit)
        if length >= allowed_length:
            token = window[place]
            longest[token] = max(longest.get(token, 0), length)
    single = {b[0] for b in breakers if len(b) == 1}
    return {
        token: multiplier * base ** (length - allowed_length)
        for token, length in longest.items()
        if token not in single
    }


def p_value(counts: NDArray[Any], expected: Doubles) -> float:
    """Chi-square's, of ``counts`` against probabilities; cells of fewer than 8 expected join.

    0 if anything was drawn that cannot be.
    """
    counts = np.asarray(counts, np.float64)
    if counts[expected == 0].any():
        return 0.0
    goal = expected * counts.sum()
    rare = goal < 8
    cells, goals = counts[~rare].tolist(), goal[~rare].tolist()
    if goal[rare].sum() > 0:
        cells.append(counts[rare].sum())
        goals.append(goal[rare].sum())
    if len(cells) < 2:
        return 1.0
    statistic = sum((c - g) ** 2 / g for c, g in zip(cells, goals, strict=True))
    return float(mpmath.gammainc((len(cells) - 1) / 2, statistic / 2, regularized=True))
