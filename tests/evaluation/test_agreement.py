"""Agreement over paths: an interval that is right when whole paths agree or do not."""

from __future__ import annotations

import numpy as np
import pytest
from statsmodels.stats.proportion import proportion_confint

from farthing.evaluation.agreement import compare_agreement, path_agreement
from farthing.evaluation.statistics import mcnemar
from support.binomial_limits import most_in_binomial_limits

PATHS, LENGTH = 60, 48
PATH_OF = np.repeat(np.arange(PATHS, dtype=np.int32), LENGTH)


def test_positions_like_any_others_have_wilsons_interval() -> None:
    """Each path disagrees equally often: less spread than chance has, which is no gain."""
    same = np.tile(np.arange(LENGTH) % 8 > 0, PATHS)
    found = path_agreement(same, PATH_OF)
    assert found.design_effect == 1
    low, high = proportion_confint(same.sum(), len(same), method="wilson")
    assert (found.share.low, found.share.high) == pytest.approx((low, high))


def test_paths_that_agree_as_a_whole_count_as_one_position_each() -> None:
    same = np.repeat(np.arange(PATHS) % 10 > 0, LENGTH)
    found = path_agreement(same, PATH_OF)
    assert found.design_effect == pytest.approx(LENGTH * PATHS / (PATHS - 1))
    low, high = proportion_confint(54, 60, method="wilson")
    assert (found.share.count, found.share.total) == (54 * LENGTH, 60 * LENGTH)
    assert found.share.low == pytest.approx(low, abs=2e-3)
    assert found.share.high == pytest.approx(high, abs=2e-3)


def test_the_interval_covers_the_share_of_paths_that_differ() -> None:
    """Of 400 samples in which each path has a rate of its own, at least 92 % must be covered."""
    rng, covered, plain = np.random.default_rng(7), 0, 0
    for _ in range(400):
        rates = rng.beta(4.5, 0.5, PATHS)
        same = rng.random(PATHS * LENGTH) < np.repeat(rates, LENGTH)
        found = path_agreement(same, PATH_OF).share
        covered += found.low <= 0.9 <= found.high
        low, high = proportion_confint(same.sum(), len(same), method="wilson")
        plain += low <= 0.9 <= high
    assert covered >= 368
    assert plain < 300, "the paths do not differ enough to tell"


@pytest.mark.parametrize("all_of_them", [True, False])
def test_where_all_positions_are_alike_nothing_can_be_estimated(all_of_them: bool) -> None:
    found = path_agreement(np.full(PATHS * LENGTH, all_of_them), PATH_OF)
    assert found.design_effect == 1
    assert (found.share.high == 1) is all_of_them
    assert (found.share.low == 0) is not all_of_them


def test_a_single_path_has_wilsons_interval() -> None:
    same = np.arange(40) % 4 > 0
    found = path_agreement(same, np.zeros(40, np.int32))
    low, high = proportion_confint(30, 40, method="wilson")
    assert (found.share.low, found.share.high) == pytest.approx((low, high))


def alike(rng: np.random.Generator) -> np.ndarray:
    """Positions of two models that miss as many, but each more of some paths than of others."""
    rates = rng.beta(2.0, 6.0, PATHS)
    return np.asarray(rng.random(PATHS * LENGTH) >= np.repeat(rates, LENGTH))


def test_models_that_differ_by_path_alone_are_not_told_apart() -> None:
    """As single positions they would be, in half of 100 samples."""
    rng, found, plain = np.random.default_rng(7), 0, 0
    for _ in range(100):
        pair = compare_agreement(alike(rng), alike(rng), PATH_OF)
        assert pair.design_effect > 1
        found += pair.found
        plain += mcnemar(pair.only_first, pair.only_second) <= 0.05
    assert found <= most_in_binomial_limits(100, 0.05)
    assert plain > 30


def test_positions_like_any_others_are_compared_by_mcnemars_test() -> None:
    """Each path has as many for either: what they differ by is found."""
    first = np.tile(np.arange(LENGTH) % 8 > 0, PATHS)
    second = np.tile(np.arange(LENGTH) % 6 > 0, PATHS)
    pair = compare_agreement(first, second, PATH_OF)
    assert pair.design_effect == 1
    assert (pair.only_first, pair.only_second) == (6 * PATHS, 4 * PATHS)
    assert pair.p == mcnemar(6 * PATHS, 4 * PATHS)
    assert pair.found


def test_paths_that_differ_as_a_whole_count_as_one_position_each() -> None:
    first = np.ones(PATHS * LENGTH, np.bool_)
    for few, found in ((4, False), (30, True)):
        pair = compare_agreement(first, np.repeat(np.arange(PATHS) >= few, LENGTH), PATH_OF)
        assert pair.design_effect == pytest.approx(LENGTH * PATHS / (PATHS - 1))
        assert pair.found is found
        assert (pair.only_first, pair.only_second) == (few * LENGTH, 0)
