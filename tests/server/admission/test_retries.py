"""What clients say of how often they have come."""

from __future__ import annotations

import pytest

from farthing.server.admission.retries import retries_of


@pytest.mark.parametrize(
    ("value", "number"),
    [("0", 0), ("2", 2), (None, None), ("", None), ("-1", None), ("two", None), ("²", None)],
)
def test_a_number_is_taken_and_all_else_is_not_said(value: str | None, number: int | None) -> None:
    assert retries_of(value) == number


def test_a_long_number_is_nobodys() -> None:
    assert retries_of("9" * 5000) is None
