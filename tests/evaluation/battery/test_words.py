"""Words as they are compared."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farthing.evaluation.battery.words import words

SPELLED = [
    ("The U.S.A.", ["the", "usa"]),
    ("J. R. R. Tolkien", ["jrr", "tolkien"]),
    ("N'Djamena", ["ndjamena"]),
    ("São Tomé", ["sao", "tome"]),
    ("Łódź, Ærø", ["lodz", "aero"]),
    ("Port-au-Prince", ["port", "au", "prince"]),
    ("Saint Paul", ["st", "paul"]),
    ("rock & roll", ["rock", "and", "roll"]),
    ("50%", ["50", "percent"]),
    ("It's 7", ["it", "is", "7"]),
    ("H2O and CO2", ["h2o", "and", "co2"]),
    ("1,000,000", ["1000000"]),
    ("3.140", ["3.14"]),
    ("007", ["7"]),
    ("1990-1994", ["1990", "1994"]),
    ("-0", ["0"]),
    ("-0.50", ["-0.5"]),
    ("1234567890123456789012345678901", ["1234567890123456789012345678901"]),
    ("1.0000000000000000000000000000001", ["1.0000000000000000000000000000001"]),
    ("zero", ["0"]),
    ("twenty-four", ["24"]),
    ("twenty twenty", ["20", "20"]),
    ("nineteen eighty four", ["19", "84"]),
    ("one hundred and five", ["105"]),
    ("two thousand three hundred", ["2300"]),
    ("five million", ["5000000"]),
    ("three hundred thousand and one", ["300001"]),
    ("one, two", ["1", "2"]),
    ("a hundred", ["a", "hundred"]),
    ("hundred and ten", ["hundred", "and", "10"]),
    ("猫😀", ["猫"]),
    ("٣", ["3"]),
    ("²", ["2"]),
    ("4x4, 1st2 and 3D-5", ["4x4", "1st2", "and", "3d", "5"]),
    ("", []),
    ("?!", []),
]


@pytest.mark.parametrize(("text", "found"), SPELLED)
def test_a_text_is_its_words(text: str, found: list[str]) -> None:
    assert [word.text for word in words(text)] == found


SMALL = """
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
    sixteen seventeen eighteen nineteen
"""
TENS = "- - twenty thirty forty fifty sixty seventy eighty ninety"


def spelled(n: int) -> str:
    small, tens = SMALL.split(), TENS.split()
    if n < 20:
        return small[n]
    if n < 100:
        return tens[n // 10] + (f"-{small[n % 10]}" if n % 10 else "")
    size, name = next(
        each for each in ((10**6, "million"), (1000, "thousand"), (100, "hundred")) if n >= each[0]
    )
    rest = f" {'and ' if n % size < 100 else ''}{spelled(n % size)}" if n % size else ""
    return f"{spelled(n // size)} {name}{rest}"


@given(st.integers(0, 999_999_999))
def test_a_number_in_words_is_the_number(n: int) -> None:
    assert [word.text for word in words(f"{spelled(n)} days")] == [str(n), "days"]


@given(st.text() | st.text("1٢²a.,-_ x"))
def test_any_text_has_words_without_an_error(text: str) -> None:
    for word in words(text):
        assert word.text
        assert word.text == word.text.casefold()
