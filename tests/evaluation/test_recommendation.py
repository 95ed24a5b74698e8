"""Which of several models is named, by what was found of them."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from farthing.evaluation.comparison import compare_all
from farthing.evaluation.divergence import Scores
from farthing.evaluation.evaluate import Evaluation, Memory
from farthing.evaluation.measurement import Measurement
from farthing.evaluation.recommendation import LEAST_POSITIONS, Recommendation, recommend
from farthing.evaluation.size import Size
from farthing.evaluation.text import Windows

N = LEAST_POSITIONS


def model(name: str, nbytes: int, right: NDArray[np.bool_]) -> Measurement:
    nll = np.random.default_rng(1).exponential(2.0, N) + ~right
    return Measurement(
        name, name, Size(nbytes, nbytes, 4.0), Scores(nll, right), None, None, None, None
    )


def lost(right: NDArray[np.bool_], losses: int, gains: int) -> NDArray[np.bool_]:
    """The same answers but for so many that are lost, and so many others that are gained."""
    changed = right.copy()
    changed[np.flatnonzero(right)[:losses]] = False
    changed[np.flatnonzero(~right)[:gains]] = True
    return changed


def recommended(*candidates: tuple[str, int, int, int]) -> Recommendation:
    """Of models by name, bytes, losses and gains; the reference is right at 40 % of positions."""
    right = np.random.default_rng(2).random(N) < 0.4
    found = Evaluation(
        windows=Windows(np.zeros((1, 8), np.int32), 1),
        bytes_scored=1,
        paths=None,
        reference=model("reference", 2000, right),
        reference_is="itself",
        candidates=tuple(model(n, b, lost(right, less, more)) for n, b, less, more in candidates),
        memory=Memory(0),
    )
    return recommend(found, compare_all(found, 0.01), margin=0.01, max_loss=0.05)


def test_the_smallest_of_those_that_are_equivalent_is_named() -> None:
    found = recommended(
        ("w8", 1000, 40, 40), ("w6", 800, 60, 50), ("w5", 700, 200, 30), ("w4", 500, 300, 0)
    )
    assert found.all_equivalent == ("w6", "w8")
    assert found.equivalent == "w6"
    assert found.all_within_loss == ("w4", "w5", "w6", "w8")
    assert found.within_loss == "w4"


def test_flips_that_cancel_are_no_loss_but_enough_of_them_are_no_proof() -> None:
    """2,000 flips both ways: the difference is 0 and yet not known to a point."""
    assert recommended(("w4", 500, 30, 30)).equivalent == "w4"
    assert recommended(("w4", 500, 2000, 2000)).equivalent is None


def test_a_model_that_gains_more_than_the_margin_is_not_equivalent() -> None:
    found = recommended(("w4", 500, 0, 200))
    assert found.equivalent is None
    assert found.within_loss == "w4"


@pytest.mark.parametrize(("losses", "within"), [(350, "w4"), (500, None)])
def test_a_loss_counts_to_its_bound(losses: int, within: str | None) -> None:
    """4.3 % with an interval to 4.7 %, and 6.1 %."""
    found = recommended(("w4", 500, losses, 0))
    assert (found.equivalent, found.within_loss) == (None, within)
