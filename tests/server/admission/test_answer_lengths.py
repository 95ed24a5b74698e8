"""What is learnt of how long answers become, against answers whose lengths are known."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from statistics import mean

import pytest

from farthing.server.admission.answer_lengths import MEMORY, USUAL_LENGTH, AnswerLengths

Draw = Callable[[Random], int]


def exponential(rng: Random) -> int:
    return max(1, math.ceil(rng.expovariate(1 / 100)))


def two_sorts(rng: Random) -> int:
    """Short replies and long ones."""
    return rng.randint(5, 15) if rng.random() < 0.6 else rng.randint(300, 500)


def learnt(draw: Draw, limit: int, seed: int = 0, count: int = 2000) -> AnswerLengths:
    rng, lengths = Random(seed), AnswerLengths()
    for _ in range(count):
        natural = draw(rng)
        lengths.observe(0, min(natural, limit), ended=natural < limit)
    return lengths


def remaining(draw: Draw, sampled: int, limit: int) -> float:
    """The mean of what longer answers have left, found by drawing many."""
    rng = Random(99)
    longer = [n for n in (draw(rng) for _ in range(40_000)) if n > sampled]
    return mean(min(n, limit) - sampled for n in longer)


@pytest.mark.parametrize("draw", [exponential, two_sorts])
@pytest.mark.parametrize("sampled", [0, 20, 100, 250])
@pytest.mark.parametrize("limit", [300, 1000])
def test_the_mean_of_what_is_left_is_that_of_longer_answers(
    draw: Draw, sampled: int, limit: int
) -> None:
    truth = remaining(draw, sampled, limit)
    found = learnt(draw, limit).mean_remainder(sampled, limit)
    # It remembers 256 ends: an exponential mean of them is off by 6 %, and thrice that is rare.
    assert found == pytest.approx(truth, rel=3 / math.sqrt(MEMORY) + 0.05, abs=2)


def test_quantiles_ascend_and_keep_to_the_limit() -> None:
    lengths = learnt(exponential, 1000)
    found = [lengths.remainder(50, 200, i / 50) for i in range(50)]
    assert found == sorted(found)
    assert found[0] == 1
    assert found[-1] == 150
    assert lengths.remainder(200, 200, 0.5) == 1


def test_answers_that_still_run_count_as_far_as_they_came() -> None:
    """Of answers of 10 and of 1,000 tokens, only the short have ended: half of all, not all."""
    lengths = AnswerLengths()
    for _ in range(200):
        lengths.observe(0, 10, ended=True)
        lengths.observe(0, 10, ended=False)
        lengths.observe(10, 500, ended=False)
    far = sum(lengths.remainder(0, 1000, i / 100) > 400 for i in range(100))
    assert 40 <= far <= 60


def test_answers_cut_off_by_their_limit_do_not_seem_short() -> None:
    lengths = learnt(exponential, 20)
    assert lengths.mean_remainder(0, 100_000) > 70


def test_old_answers_are_forgotten() -> None:
    lengths = learnt(exponential, 1000, count=5000)
    for _ in range(4 * MEMORY):
        lengths.observe(0, 10, ended=True)
    assert lengths.mean_remainder(0, 1000) < 15


def test_before_any_answer_one_is_as_long_as_usual() -> None:
    assert AnswerLengths().mean_remainder(0, 10**6) == pytest.approx(USUAL_LENGTH, rel=0.05)
    assert AnswerLengths().remainder(0, 5, 0.99) == 5


def test_piecewise_notes_say_what_whole_ones_do() -> None:
    whole, pieces, rng = AnswerLengths(), AnswerLengths(), Random(5)
    for _ in range(50):
        length = rng.randint(1, 3000)
        whole.observe(0, length, ended=True)
        at = 0
        while length - at > 16:
            pieces.observe(at, at + 16, ended=False)
            at += 16
        pieces.observe(at, length, ended=True)
    for sampled in (0, 7, 900, 2_000_000):
        assert whole.remainder(sampled, 10**7, 0.7) == pytest.approx(
            pieces.remainder(sampled, 10**7, 0.7), rel=1e-6, abs=1
        )
