"""A comparison in one sentence. None says that two models are equal: no test shows that."""

from __future__ import annotations

import math
from typing import Literal

from farthing.evaluation.discordance import Discordance
from farthing.evaluation.statistics import (
    Equivalence,
    Interval,
    Proportion,
    smallest_mean_seen,
    smallest_rate_seen,
)

_DESTROYED = 10**9
"""How many times, or percent, a perplexity has to be another for nobody to ask how many."""

Standing = Literal["equivalent", "worse", "better", "open"]
_STANDINGS: dict[Standing, str] = {
    "equivalent": "equivalent within",
    "worse": "worse by more than",
    "better": "better by more than",
    "open": "not shown to be within",
}


def perplexity_verdict(log_ratio: Interval) -> str:
    """Of the mean difference of log likelihoods a token, model less reference, and its interval."""
    if not math.isfinite(log_ratio.value):
        return "no verdict: a perplexity is not a finite number"
    if log_ratio.standard_error == 0 and log_ratio.value == 0:
        return "no difference at any token"
    if log_ratio.low <= 0 <= log_ratio.high:
        return _nothing_seen(percent(_change(smallest_mean_seen(log_ratio.standard_error))))
    if log_ratio.low > math.log(_DESTROYED):
        return f"worse: perplexity more than {_DESTROYED:,} times as high"
    if log_ratio.value > math.log(10):
        ratio = log_ratio.exponential()
        times, low, high = map(_figures, (ratio.value, ratio.low, ratio.high))
        return f"worse: perplexity {times} times as high ({low} to {high})"
    least, most = sorted(abs(_change(end)) for end in (log_ratio.low, log_ratio.high))
    change = _share(abs(_change(log_ratio.value)), least, most)
    if log_ratio.value > 0:
        return f"worse: perplexity {change} higher"
    return f"better: perplexity {change} lower"


def agreement_verdict(agreement: Proportion) -> str:
    """Of the positions at which the model takes the reference's token."""
    other = agreement.total - agreement.count
    if other == 0:
        return (
            f"no other token in {agreement.total:,} positions; "
            f"it would have seen one at {percent(smallest_rate_seen(agreement.total))} of them"
        )
    share = _share(other / agreement.total, 1 - agreement.high, 1 - agreement.low)
    return f"another token at {other:,} of {agreement.total:,} positions: {share}"


def battery_verdict(pair: Discordance) -> str:
    """Of questions, by those that one of the two alone answers right."""
    n, seen = pair.total, pair.smallest_seen
    if not pair.found:
        if seen is None:
            return f"no difference that {n:,} questions could show"
        return _nothing_seen(f"{math.ceil(seen * n)} of {n:,} questions ({percent(seen)})")
    net = pair.only_first - pair.only_second
    return (
        f"{'better' if net > 0 else 'worse'}: {abs(net)} {'more' if net > 0 else 'fewer'} of "
        f"{n:,} questions right ({percent(abs(net) / n)}; {_p(pair.p)})"
    )


def agreement_difference_verdict(pair: Discordance) -> str:
    """Of positions, by those at which one of two models alone takes the reference's token."""
    n = pair.total
    if not pair.found:
        if pair.smallest_seen is None:
            return f"no difference that {n:,} positions could show"
        return _nothing_seen(f"{percent(pair.smallest_seen)} of the positions")
    net = pair.only_first - pair.only_second
    return (
        f"{'better' if net > 0 else 'worse'}: the reference's token at {abs(net):,} "
        f"{'more' if net > 0 else 'fewer'} of {n:,} positions ({percent(abs(net) / n)}; "
        f"{_p(pair.p)})"
    )


def equivalence_verdict(found: Equivalence) -> str:
    """Of two one-sided tests of the model's share less the reference's."""
    difference = (
        f"{_points(found.difference, sign=True)} "
        f"({_points(found.low90, sign=True)} to {_points(found.high90, sign=True)})"
    )
    return f"{standing_in_words(standing(found), found.margin)}: {difference}"


def standing(found: Equivalence) -> Standing:
    """What two one-sided tests showed."""
    if found.equivalent:
        return "equivalent"
    if found.high90 < -found.margin:
        return "worse"
    if found.low90 > found.margin:
        return "better"
    return "open"


def standing_in_words(found: Standing, margin: float) -> str:
    """As ``equivalent within 1 point``."""
    return f"{_STANDINGS[found]} {points_in_words(margin)}"


def points_in_words(share: float) -> str:
    """As ``1 point``, ``2.5 points``."""
    points = _points(share)
    return f"{points} {'point' if points == '1' else 'points'}"


def percent(share: float) -> str:
    """A share, or a change, to two figures: ``0.83 %``, ``12 %``, ``0.005 %``."""
    return f"{_figures(share * 100)} %"


def _nothing_seen(seen: str) -> str:
    return f"no difference this test could see; it would have seen {seen}"


def _share(value: float, low: float, high: float) -> str:
    """A share with its interval: ``1.9 % (1.2 to 2.6 %)``."""
    return f"{percent(value)} ({_figures(low * 100)} to {percent(high)})"


def _change(log_ratio: float) -> float:
    """What a ratio of that logarithm changes, a share; infinite where no float is large enough."""
    return math.expm1(log_ratio) if log_ratio < 700 else math.inf


def _figures(value: float) -> str:
    if value == 0:
        return "0"
    if value > _DESTROYED:
        return f"more than {_DESTROYED:,}"
    decimals = 1 - math.floor(math.log10(float(f"{abs(value):.1e}")))
    return f"{round(value, decimals):,.{max(0, decimals)}f}"


def _points(share: float, *, sign: bool = False) -> str:
    text = f"{share * 100:{'+' if sign else ''}.2f}"
    text = text.rstrip("0").rstrip(".")
    return "0" if text in {"+0", "-0"} else text


def _p(p: float) -> str:
    return "p < 0.0001" if p < 0.0001 else f"p = {_figures(p)}"
