"""Which scheme each unit gets, so that all fit a size with the least harm together.

A multiple-choice knapsack. Everett's multipliers ("Generalized Lagrange Multiplier Method", 1963)
solve it for sizes on the lower convex hull; what a size leaves beyond is spent greedily.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Option:
    """A way to store a unit."""

    scheme: str
    nbytes: int
    harm: float  # at least 0


@dataclass(frozen=True, slots=True)
class _Step:
    """From one corner of a unit's hull to the next, which is larger and does less harm."""

    rate: float  # harm avoided a byte
    unit: int
    corner: int  # the one gone to


def allocate(units: Sequence[Sequence[Option]], budget: int) -> list[Option] | None:
    """An option for each unit, at most ``budget`` bytes together; None if nothing fits.

    The harm is at most that of the best choice plus the harm that the first step of the hull which
    did not fit would have avoided, and is the least there is where that step would have begun at
    exactly the budget. The same input gives the same choice: of equal rates the earlier unit's is
    taken first.
    """
    hulls = [_hull(options) for options in units]
    chosen = [hull[0] for hull in hulls]
    room = budget - sum(option.nbytes for option in chosen)
    if room < 0:
        return None
    for step in _steps(hulls):
        wider = hulls[step.unit][step.corner]
        more = wider.nbytes - chosen[step.unit].nbytes
        if more > room:
            break
        chosen[step.unit] = wider
        room -= more
    return _exchange(units, _fill(units, chosen, room), budget)


def _hull(options: Sequence[Option]) -> list[Option]:
    """Corners of the lower convex hull over (bytes, harm), by size; harm falls along it."""
    corners: list[Option] = []
    for option in sorted(options, key=lambda o: (o.nbytes, o.harm)):
        if corners and option.harm >= corners[-1].harm:
            continue
        while len(corners) > 1 and _rate(corners[-2], corners[-1]) <= _rate(corners[-1], option):
            corners.pop()
        if corners and corners[-1].nbytes == option.nbytes:
            continue
        corners.append(option)
    return corners


def _rate(small: Option, large: Option) -> float:
    return (small.harm - large.harm) / (large.nbytes - small.nbytes)


def _steps(hulls: Sequence[Sequence[Option]]) -> list[_Step]:
    """All steps, the most harm avoided a byte first; those of a unit are in their order."""
    steps = [
        _Step(_rate(hull[corner - 1], hull[corner]), unit, corner)
        for unit, hull in enumerate(hulls)
        for corner in range(1, len(hull))
    ]
    return sorted(steps, key=lambda step: -step.rate)


def _fill(units: Sequence[Sequence[Option]], chosen: Sequence[Option], room: int) -> list[Option]:
    """Spends ``room`` on whatever avoids the most harm, off the hull too, until nothing fits."""
    chosen = list(chosen)
    while True:
        best, gain = None, 0.0
        for unit, options in enumerate(units):
            for option in options:
                fits = option.nbytes - chosen[unit].nbytes <= room
                if fits and chosen[unit].harm - option.harm > gain:
                    best, gain = (unit, option), chosen[unit].harm - option.harm
        if best is None:
            return chosen
        unit, option = best
        room -= option.nbytes - chosen[unit].nbytes
        chosen[unit] = option


def _exchange(units: Sequence[Sequence[Option]], chosen: list[Option], budget: int) -> list[Option]:
    """Makes one unit smaller and another larger as long as that avoids harm."""
    while True:
        room = budget - sum(option.nbytes for option in chosen)
        moves = [
            (option.nbytes - chosen[unit].nbytes, option.harm - chosen[unit].harm, unit, option)
            for unit, options in enumerate(units)
            for option in options
        ]
        smaller = sorted((m for m in moves if m[0] < 0), key=lambda m: m[1])
        larger = sorted((m for m in moves if m[1] < 0), key=lambda m: m[1])
        best, total = None, 0.0
        for less in smaller:
            if not larger or less[1] + larger[0][1] >= total:
                break
            for more in larger:
                if less[1] + more[1] >= total:
                    break
                if more[2] != less[2] and less[0] + more[0] <= room:
                    best, total = (less, more), less[1] + more[1]
                    break
        if best is None:
            return chosen
        for _, _, unit, option in best:
            chosen[unit] = option
