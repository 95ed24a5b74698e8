"""What counts as a right answer, and what only looks like one."""

from __future__ import annotations

import pytest

from farthing.evaluation.battery import Item, is_right

CAPITAL = Item("What is the capital of France?", ("Paris",))
DAYS = Item("How many days does a week have?", ("7",))
RIBS = Item("How many ribs are in a human body?", ("24",))
OCEAN = Item("Which ocean is the largest?", ("Pacific",))
PLANET = Item("Which is the largest planet?", ("Jupiter",))
GUINEA = Item("Which country has the capital Conakry?", ("Guinea",))
AUTHOR = Item("Who wrote Winnie-the-Pooh?", ("A. A. Milne", "Milne"))
CHAD = Item("What is the capital of Chad?", ("N'Djamena",))
MINNESOTA = Item("What is the capital of Minnesota?", ("Saint Paul",))
BEATLES = Item("Which band sang Help?", ("The Beatles",))

RIGHT = [
    (CAPITAL, " Paris"),
    (CAPITAL, "paris."),
    (CAPITAL, "the Paris"),
    (CAPITAL, "**Paris**"),
    (CAPITAL, "“Paris”"),
    (CAPITAL, "Paris\nQuestion: What is the capital of Spain?"),
    (CAPITAL, "Paris. It has two million inhabitants."),
    (CAPITAL, "Paris, France"),
    (CAPITAL, "Paris in France"),
    (CAPITAL, "Paris, not Lyon"),
    (CAPITAL, "Paris is the capital"),
    (CAPITAL, "Paris (since 987)"),
    (CAPITAL, "The capital of France is Paris."),
    (CAPITAL, "It's Paris"),
    (CAPITAL, "It is the Paris"),
    (DAYS, "seven"),
    (DAYS, "Seven days"),
    (DAYS, "7.0"),
    (DAYS, "7 days."),
    (RIBS, "Twenty-four"),
    (RIBS, "twenty four ribs"),
    (OCEAN, "The Pacific Ocean"),
    (PLANET, "Jupiter, the largest planet"),
    (AUTHOR, "A.A. Milne"),
    (AUTHOR, "A A Milne"),
    (AUTHOR, "Milne"),
    (CHAD, "N’Djaména"),
    (CHAD, "Ndjamena"),
    (MINNESOTA, "St. Paul"),
    (MINNESOTA, "St Paul, Minnesota"),
    (BEATLES, "Beatles"),
    (BEATLES, "The Beatles, a band of four"),
    (Item("What is the capital of Brazil?", ("Brasilia",)), "Brasília"),
    (Item("What is the capital of Haiti?", ("Port-au-Prince",)), "Port au Prince"),
    (Item("Which is larger, Paris or London?", ("London",)), "London is larger"),
    (Item("How far?", ("1000",)), "1,000"),
    (Item("How far?", ("1000",)), "one thousand"),
    (Item("How far?", ("1205",)), "one thousand two hundred and five"),
    (Item("How cold?", ("-40",)), "−40"),
    (Item("Who?", ("World War I",)), "World War I."),
    (Item("Which state?", ("Washington, D.C.",)), "Washington DC"),
]

WRONG = [
    (CAPITAL, ""),
    (CAPITAL, "\nParis"),
    (CAPITAL, "not Paris"),
    (CAPITAL, "It is not Paris"),
    (CAPITAL, "The capital of France is not Paris"),
    (CAPITAL, "Lyon. Paris is larger"),
    (CAPITAL, "Lyon, Paris"),
    (CAPITAL, "Paris, Texas"),
    (CAPITAL, "Paris in Texas"),
    (CAPITAL, "Paris, Lyon, Marseille"),
    (CAPITAL, "Paris or Lyon"),
    (CAPITAL, "Paris and Lyon"),
    (CAPITAL, "Paris/Lyon"),
    (CAPITAL, "Parisian"),
    (CAPITAL, "Par is"),
    (CAPITAL, "France"),
    (CAPITAL, "The capital of France"),
    (CAPITAL, "Is it Paris or Lyon?"),
    (DAYS, "17"),
    (DAYS, "70"),
    (DAYS, "seventy"),
    (DAYS, "7.5"),
    (DAYS, "-7"),
    (DAYS, "7,000"),
    (DAYS, "seven hundred"),
    (DAYS, "6, 7"),
    (DAYS, "7, 8"),
    (DAYS, "7 or 8"),
    (RIBS, "twenty"),
    (RIBS, "twenty, four"),
    (GUINEA, "Guinea-Bissau"),
    (GUINEA, "Equatorial Guinea"),
    (GUINEA, "Papua New Guinea"),
    (GUINEA, "Guinean"),
    (Item("Which element has the symbol C?", ("Carbon",)), "Carbon dioxide"),
    (Item("What is the capital of Mississippi?", ("Jackson",)), "Jacksonville"),
    (Item("Which is larger, Paris or London?", ("London",)), "Paris or London"),
    (Item("Which is larger, Paris or London?", ("London",)), "Paris is larger than London"),
    (Item("Which is larger, Paris or London?", ("London",)), "Paris, London"),
    (Item("Which is larger, London or Paris?", ("London",)), "London or Paris"),
    (Item("London or Paris: which is larger?", ("London",)), "London or Paris: which is larger?"),
]


@pytest.mark.parametrize(("item", "text"), RIGHT)
def test_an_answer_is_right_however_it_is_written(item: Item, text: str) -> None:
    assert is_right(item, text)


@pytest.mark.parametrize(("item", "text"), WRONG)
def test_what_only_has_the_answer_in_it_is_wrong(item: Item, text: str) -> None:
    assert not is_right(item, text)
