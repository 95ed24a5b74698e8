"""What two rows of logits say of the next token, in float64."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from farthing.errors import FarthingError

Logits = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """Of each scored token, in the order of the text, (n,); nats.

    The last four are None without a reference. Of equally likely tokens the lowest id counts as
    the likeliest.
    """

    nll: NDArray[np.float64]  # negative log likelihood of the token that came
    right: NDArray[np.bool_]  # whether the likeliest token is the one that came
    reference_nll: NDArray[np.float64] | None = None
    reference_right: NDArray[np.bool_] | None = None
    kl: NDArray[np.float64] | None = None  # D(reference || model) over the whole vocabulary
    same_top: NDArray[np.bool_] | None = None  # whether the likeliest token is the same

    @classmethod
    def joined(cls, parts: Sequence[Scores]) -> Self:
        """All of them, one behind the other; there is at least one, and they are of a kind."""

        def column(name: str) -> Any:
            values = [getattr(part, name) for part in parts]
            return None if values[0] is None else np.concatenate(values)

        return cls(*(column(field.name) for field in fields(cls)))


class Comparison:
    """Scores rows of ``vocab`` logits on threads of its own; close it after use.

    Each row is a matter of one thread, so their number changes nothing. ``model`` and ``reference``
    are what errors call the two.
    """

    def __init__(self, vocab: int, num_threads: int, *, model: str, reference: str = "") -> None:
        self._model, self._reference = model, reference
        self._scratch = [np.empty((4, vocab)) for _ in range(num_threads)]
        self._threads = ThreadPoolExecutor(num_threads)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown()

    def score(
        self, targets: NDArray[np.int32], logits: Logits, reference: Logits | None = None
    ) -> Scores:
        """Scores of ``logits`` (n, vocab) against ``reference`` and the tokens that came, (n,).

        Raises :class:`FarthingError` for logits that are not finite.
        """
        n = len(targets)
        nll, reference_nll, kl = np.empty(n), np.empty(n), np.empty(n)
        right, reference_right, same_top = (np.empty(n, np.bool_) for _ in range(3))

        def score_rows(rows: NDArray[np.intp], scratch: NDArray[np.float64]) -> None:
            q, exp_q, p, exp_p = scratch
            for i in rows:
                log_q = _shift(self._model, logits[i], q, exp_q)[1]
                nll[i] = log_q - q[targets[i]]
                likeliest = logits[i].argmax()
                right[i] = likeliest == targets[i]
                if reference is None:
                    continue
                sum_p, log_p = _shift(self._reference, reference[i], p, exp_p)
                reference_nll[i] = log_p - p[targets[i]]
                # D = sum(P (log P - log Q)), P = exp(p) / sum_p and log P = p - log_p.
                p -= q
                exp_p *= p
                kl[i] = max(exp_p.sum() / sum_p - (log_p - log_q), 0.0)
                expected = reference[i].argmax()
                reference_right[i] = expected == targets[i]
                same_top[i] = likeliest == expected

        shares = np.array_split(np.arange(n), len(self._scratch))
        list(self._threads.map(score_rows, shares, self._scratch))
        if reference is None:
            return Scores(nll, right)
        return Scores(nll, right, reference_nll, reference_right, kl, same_top)


def _shift(
    name: str, logits: Logits, x: NDArray[np.float64], exp_x: NDArray[np.float64]
) -> tuple[float, float]:
    """Sets ``x`` to a row less its maximum and ``exp_x`` to exp of that; its sum, and the log."""
    top = logits.max()
    if not (np.isfinite(top) and np.isfinite(logits.min())):
        raise FarthingError(f"{name}: the model gives logits that are not finite")
    np.subtract(logits, top, out=x, dtype=np.float64)
    np.exp(x, out=exp_x)
    total = float(exp_x.sum())
    return total, math.log(total)
