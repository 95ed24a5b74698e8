"""Schemes under a size, against all choices there are."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from farthing.mixed.allocation import Option, allocate

options = st.builds(
    Option, scheme=st.just("any"), nbytes=st.integers(1, 40), harm=st.integers(0, 50).map(float)
)
units = st.lists(st.lists(options, min_size=1, max_size=5), min_size=1, max_size=5)


def size(chosen: list[Option]) -> int:
    return sum(option.nbytes for option in chosen)


def harm(chosen: list[Option]) -> float:
    return sum(option.harm for option in chosen)


def best(given_units: list[list[Option]], budget: int) -> float | None:
    """The least harm of all choices that fit."""
    fitting = [list(c) for c in product(*given_units) if size(list(c)) <= budget]
    return min(map(harm, fitting), default=None)


def widest(given_units: list[list[Option]]) -> float:
    """The most harm that one unit's options differ by."""
    return max(max(o.harm for o in u) - min(o.harm for o in u) for u in given_units)


@given(units, st.integers(0, 220))
def test_it_fits_whenever_anything_does_and_is_near_the_best(
    given_units: list[list[Option]], budget: int
) -> None:
    chosen = allocate(given_units, budget)
    least = best(given_units, budget)
    assert (chosen is None) == (least is None)
    if chosen is None or least is None:
        return
    assert all(option in unit for option, unit in zip(chosen, given_units, strict=True))
    assert size(chosen) <= budget
    assert harm(chosen) <= least + widest(given_units)
    for at, unit in enumerate(given_units):  # no unit alone can do better
        room = budget - size(chosen) + chosen[at].nbytes
        assert chosen[at].harm == min(o.harm for o in unit if o.nbytes <= room)


@given(units, st.integers(0, 220))
def test_no_exchange_between_two_units_does_better(
    given_units: list[list[Option]], budget: int
) -> None:
    chosen = allocate(given_units, budget)
    if chosen is None:
        return
    for one in range(len(given_units)):
        for other in range(one):
            for a, b in product(given_units[one], given_units[other]):
                changed = [*chosen]
                changed[one], changed[other] = a, b
                assert size(changed) > budget or harm(changed) >= harm(chosen)


@given(units)
def test_sizes_on_the_hull_are_solved(given_units: list[list[Option]]) -> None:
    """The cheapest choice at any price of a byte is the best of its size (Everett's theorem)."""
    for price in (0.123, 0.457, 1.013, 3.331):
        cheapest = [min(unit, key=lambda o: o.harm + price * o.nbytes) for unit in given_units]
        chosen = allocate(given_units, size(cheapest))
        assert chosen is not None
        assert harm(chosen) == harm(cheapest) == best(given_units, size(cheapest))


def test_what_the_hull_leaves_is_spent_off_it() -> None:
    small, between, large = Option("a", 1, 10.0), Option("b", 5, 9.0), Option("c", 6, 0.0)
    assert allocate([[small, between, large]], 5) == [between]
    assert allocate([[small, between, large]], 6) == [large]


def test_one_gives_way_where_that_lets_another_gain_more() -> None:
    """The steepest step is taken first, and leaves no room for the one that avoids more."""
    first = [Option("a", 1, 10.0), Option("b", 3, 4.0)]
    second = [Option("a", 1, 10.0), Option("b", 5, 0.0)]
    assert allocate([first, second], 6) == [first[0], second[1]]


def test_the_same_input_gives_the_same_choice() -> None:
    unit = [Option("a", 1, 3.0), Option("b", 2, 1.0), Option("c", 2, 1.0)]
    assert allocate([unit, unit], 3) == [unit[1], unit[0]]
