"""Sizes as people write them."""

from __future__ import annotations

import pytest

from farthing.cli.sizes import parse_bytes
from farthing.errors import InvalidParameterError


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("400000000", 400_000_000),
        ("400M", 400_000_000),
        ("400MB", 400_000_000),
        (" 400 mb ", 400_000_000),
        ("350MiB", 350 << 20),
        ("350mi", 350 << 20),
        ("0.4GB", 400_000_000),
        (".5G", 500_000_000),
        ("1.5GiB", 3 << 29),
        ("12B", 12),
        ("3k", 3_000),
        ("2T", 2 * 10**12),
        ("0.7KiB", 716),
        ("0.1000000000000000055511151231257827G", 100_000_000),
    ],
)
def test_they_are_understood(text: str, nbytes: int) -> None:
    assert parse_bytes(text, "--mixed") == nbytes


@pytest.mark.parametrize(
    "text",
    ["", "M", "-1", "1e9", "4 00M", "400Q", "400MM", "iB", "0x10", "٤M", "1" * 41, "nan", "1,5G"],
)
def test_what_is_no_size_is_refused_by_name(text: str) -> None:
    with pytest.raises(
        InvalidParameterError, match=r"^--mixed '.*': not a size; write bytes, 400M"
    ):
        parse_bytes(text, "--mixed")
