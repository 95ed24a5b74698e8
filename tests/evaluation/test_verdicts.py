"""Verdicts: what they say of which numbers, and that none says equal."""

from __future__ import annotations

import math
from typing import Any

import pytest

from farthing.evaluation.discordance import Discordance
from farthing.evaluation.statistics import Interval, equivalence, smallest_difference_seen, wilson
from farthing.evaluation.verdicts import (
    agreement_difference_verdict,
    agreement_verdict,
    battery_verdict,
    equivalence_verdict,
    percent,
    perplexity_verdict,
)


def log(*ratios: float) -> Interval:
    value, low, high = (math.log(ratio) for ratio in ratios)
    return Interval(value, low, high, (high - low) / 3.92)


PERPLEXITY = [
    (log(1.019, 1.012, 1.026), "worse: perplexity 1.9 % (1.2 to 2.6 %) higher"),
    (log(0.981, 0.974, 0.988), "better: perplexity 1.9 % (1.2 to 2.6 %) lower"),
    (log(3.5, 3.0, 4.0), "worse: perplexity 250 % (200 to 300 %) higher"),
    (
        log(365_416_000 / 23, 1.44e7, 1.7e7),
        "worse: perplexity 16,000,000 times as high (14,000,000 to 17,000,000)",
    ),
    (
        Interval(2000.0, 1900.0, 2100.0, 50.0),
        "worse: perplexity more than 1,000,000,000 times as high",
    ),
    (
        Interval(800.0, 5.0, 1600.0, 400.0),
        "worse: perplexity more than 1,000,000,000 times as high (150 to more than 1,000,000,000)",
    ),
    (
        Interval(2.0, 0.5, 900.0, 300.0),
        "worse: perplexity 640 % (65 to more than 1,000,000,000 %) higher",
    ),
    (
        Interval(1.0, -1600.0, 1600.0, 800.0),
        "no difference this test could see; it would have seen more than 1,000,000,000 %",
    ),
    (
        Interval(math.inf, math.nan, math.nan, math.nan),
        "no verdict: a perplexity is not a finite number",
    ),
    (
        Interval(0.001, -0.0046, 0.0066, 0.00285),
        "no difference this test could see; it would have seen 0.80 %",
    ),
    (Interval(0.0, 0.0, 0.0, 0.0), "no difference at any token"),
]


@pytest.mark.parametrize(("found", "said"), PERPLEXITY)
def test_perplexities_are_compared_in_percent(found: Interval, said: str) -> None:
    assert perplexity_verdict(found) == said


def test_agreement_is_counted_in_positions() -> None:
    said = "no other token in 144 positions; it would have seen one at 1.1 % of them"
    assert agreement_verdict(wilson(144, 144)) == said
    said = "another token at 2 of 144 positions: 1.4 % (0.38 to 4.9 %)"
    assert agreement_verdict(wilson(142, 144)) == said


BATTERY = [
    ((3, 20, 400), "worse: 17 fewer of 400 questions right (4.2 %; p = 0.00049)"),
    ((30, 10, 400), "better: 20 more of 400 questions right (5.0 %; p = 0.0022)"),
    ((0, 40, 1000), "worse: 40 fewer of 1,000 questions right (4.0 %; p < 0.0001)"),
    (
        (1, 2, 16),
        "no difference this test could see; it would have seen 8 of 16 questions (45 %)",
    ),
    (
        (0, 0, 581),
        "no difference this test could see; it would have seen 8 of 581 questions (1.4 %)",
    ),
    ((0, 0, 5), "no difference that 5 questions could show"),
]


@pytest.mark.parametrize(("counts", "said"), BATTERY)
def test_batteries_are_compared_in_questions(counts: tuple[int, int, int], said: str) -> None:
    assert battery_verdict(Discordance.of(*counts)) == said


DIFFERENCE = [
    ((12, 40, 8192), "worse: the reference's token at 28 fewer of 8,192 positions (0.34 %; p = "),
    ((40, 12, 8192), "better: the reference's token at 28 more of 8,192 positions (0.34 %; p = "),
    ((12, 40, 8192, 4.0), "no difference this test could see; it would have seen 0.50 % of the "),
    ((0, 0, 5), "no difference that 5 positions could show"),
    ((0, 1, 24, 6.0), "no difference that 24 positions could show"),
]


@pytest.mark.parametrize(("counts", "said"), DIFFERENCE)
def test_agreements_are_compared_in_positions(counts: tuple[Any, ...], said: str) -> None:
    assert agreement_difference_verdict(Discordance.of(*counts)).startswith(said)


def test_what_the_battery_would_have_seen_is_a_whole_number_that_is_enough() -> None:
    seen = smallest_difference_seen(581)
    assert seen is not None
    assert 7 < seen * 581 <= 8


EQUIVALENCE = [
    ((50, 52, 8192), "equivalent within 1 point: -0.02 (-0.24 to +0.19)"),
    ((1, 3, 144), "not shown to be within 1 point: -1.39 (-4.96 to +1.7)"),
    ((10, 300, 8192), "worse by more than 1 point: -3.54 (-3.91 to -3.2)"),
    ((300, 10, 8192), "better by more than 1 point: +3.54 (+3.2 to +3.91)"),
]


@pytest.mark.parametrize(("counts", "said"), EQUIVALENCE)
def test_equivalence_is_within_a_margin(counts: tuple[int, int, int], said: str) -> None:
    assert equivalence_verdict(equivalence(*counts, 0.01)) == said


def test_margins_are_named_as_they_are() -> None:
    assert "within 0.5 points" in equivalence_verdict(equivalence(5, 5, 8192, 0.005))
    assert "within 10 points" in equivalence_verdict(equivalence(5, 5, 8192, 0.1))


@pytest.mark.parametrize(
    ("share", "said"),
    [
        (0, "0 %"),
        (0.0083, "0.83 %"),
        (0.00996, "1.0 %"),
        (0.0996, "10 %"),
        (0.12, "12 %"),
        (0.00005, "0.0050 %"),
        (1.5, "150 %"),
        (1e7, "1,000,000,000 %"),
    ],
)
def test_shares_have_two_figures(share: float, said: str) -> None:
    assert percent(share) == said


def test_no_verdict_says_equal() -> None:
    """Nor the same: a test shows a difference, or how large one it could have missed."""
    verdicts = [perplexity_verdict(each) for each, _ in PERPLEXITY]
    verdicts += [battery_verdict(Discordance.of(*each)) for each, _ in BATTERY]
    verdicts += [equivalence_verdict(equivalence(*each, 0.01)) for each, _ in EQUIVALENCE]
    verdicts += [agreement_verdict(wilson(n, 144)) for n in (0, 100, 144)]
    for verdict in verdicts:
        assert not {"equal", "same", "identical"} & set(verdict.split())
