"""Log likelihoods and divergence of rows of logits, against wider arithmetic."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from farthing.errors import FarthingError
from farthing.evaluation.divergence import Comparison, Scores

VOCAB = 1009
NAMES = ("nll", "right", "reference_nll", "reference_right", "kl", "same_top")


def logits(seed: int, rows: int = 24) -> NDArray[np.float32]:
    """Rows of growing spread: from nearly uniform to all weight on one token, with an outlier."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, VOCAB)) * np.geomspace(1e-3, 300, rows)[:, None]
    x += rng.standard_normal((rows, 1)) * 100
    x[::5, 17] += 1e4
    return x.astype(np.float32)


def targets(rows: int = 24) -> NDArray[np.int32]:
    return np.random.default_rng(9).integers(0, VOCAB, rows).astype(np.int32)


def score(
    model: NDArray[np.float32], reference: NDArray[np.float32] | None, num_threads: int = 2
) -> Scores:
    names = {"model": "the model", "reference": "the reference"}
    with Comparison(VOCAB, num_threads, **names) as comparison:
        return comparison.score(targets(len(model)), model, reference)


def log_probabilities(
    x: NDArray[np.float32], dtype: type[np.floating] = np.longdouble
) -> NDArray[np.floating]:
    y = x.astype(dtype)
    y -= y.max(axis=1, keepdims=True)
    return np.asarray(y - np.log(np.exp(y).sum(axis=1, keepdims=True)))


def truth(model: NDArray[np.float32], reference: NDArray[np.float32]) -> dict[str, NDArray]:
    q, p = log_probabilities(model), log_probabilities(reference)
    rows = np.arange(len(model))
    return {
        "nll": -q[rows, targets()],
        "reference_nll": -p[rows, targets()],
        "kl": (np.exp(p) * (p - q)).sum(axis=1),
    }


def by_torch(model: NDArray[np.float32], reference: NDArray[np.float32]) -> dict[str, NDArray]:
    """What a plain program in float64 would do."""
    q, p = (torch.from_numpy(x).double().log_softmax(1) for x in (model, reference))
    wanted = torch.from_numpy(targets()).long()
    kl = torch.nn.functional.kl_div(q, p, reduction="none", log_target=True).sum(1)
    return {
        "nll": torch.nn.functional.nll_loss(q, wanted, reduction="none").numpy(),
        "reference_nll": torch.nn.functional.nll_loss(p, wanted, reduction="none").numpy(),
        "kl": kl.numpy(),
    }


NEAR: dict[str, Callable[[], NDArray[np.float32]]] = {
    "another model": lambda: logits(2),
    "the same, rounded": lambda: logits(1).astype(np.float16).clip(-6e4, 6e4).astype(np.float32),
}


@pytest.mark.parametrize("name", ["nll", "reference_nll", "kl"])
@pytest.mark.parametrize("near", NEAR)
def test_scores_err_no_more_than_twice_a_plain_float64_program(near: str, name: str) -> None:
    reference, model = logits(1), NEAR[near]()
    expected = truth(model, reference)[name]
    assert expected.max() > 1e-4, "degenerate"
    error = np.abs(getattr(score(model, reference), name) - expected).max()
    allowed = np.abs(by_torch(model, reference)[name] - expected).max()
    assert error <= 2 * allowed


def test_without_a_reference_there_is_the_likelihood_alone() -> None:
    alone = score(logits(2), None)
    assert (alone.reference_nll, alone.reference_right) == (None, None)
    assert (alone.kl, alone.same_top) == (None, None)
    np.testing.assert_array_equal(alone.nll, score(logits(2), logits(1)).nll)


def test_a_model_does_not_diverge_from_itself_at_all() -> None:
    scores = score(logits(1), logits(1))
    assert scores.kl is not None
    assert scores.same_top is not None
    assert (scores.kl == 0).all()
    assert scores.same_top.all()
    np.testing.assert_array_equal(scores.nll, scores.reference_nll)


def test_a_shift_of_all_logits_is_no_divergence() -> None:
    """Half integers, so that float32 shifts them exactly."""
    model = np.rint(logits(1) * 2).clip(-1000, 1000) / 2
    scores = score(model, model + np.float32(64))
    assert scores.kl is not None
    assert (scores.kl == 0).all()


def test_the_likeliest_tokens_are_compared_and_the_lower_id_wins_a_tie() -> None:
    reference, model = logits(1, 3), logits(1, 3)
    top = int(reference[0].argmax())
    assert top > 0
    model[0, 0] = model[0, top]  # a tie, which the lower id wins
    model[1, 500] = model[1].max() + 1
    scores = score(model, reference)
    assert scores.same_top is not None
    assert scores.same_top.tolist() == [False, False, True]


def test_the_likeliest_token_is_compared_with_the_one_that_came() -> None:
    reference, model = logits(1, 3), logits(2, 3)
    came = targets(3)
    model[1, came[1]] = model[1].max() + 1
    model[2, 0] = model[2, came[2]] = model[2].max() + 1  # a tie, which the lower id wins
    assert came[2] > 0
    reference[0, came[0]] = reference[0].max() + 1
    scores = score(model, reference)
    assert scores.reference_right is not None
    assert scores.right.tolist() == [False, True, False]
    assert scores.reference_right.tolist() == [True, False, False]


@pytest.mark.parametrize("num_threads", [1, 3, 40])
def test_the_number_of_threads_changes_no_bit(num_threads: int) -> None:
    one, other = score(logits(2), logits(1), 2), score(logits(2), logits(1), num_threads)
    for name in NAMES:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("whose", ["model", "reference"])
def test_logits_that_are_not_finite_are_refused_by_name(value: float, whose: str) -> None:
    rows = {"model": logits(2), "reference": logits(1)}
    rows[whose][7, 300] = value
    with pytest.raises(FarthingError, match=f"^the {whose}: .* not finite"):
        score(**rows)


def test_scores_are_joined_in_order() -> None:
    whole = score(logits(2), logits(1))
    parts = [
        Scores(*(getattr(whole, name)[i:j] for name in NAMES)) for i, j in ((0, 5), (5, 6), (6, 24))
    ]
    joined = Scores.joined(parts)
    for name in NAMES:
        np.testing.assert_array_equal(getattr(joined, name), getattr(whole, name))
    assert Scores.joined([Scores(whole.nll, whole.right)]).kl is None
