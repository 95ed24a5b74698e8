"""What is kept of a measurement, whole or cut short."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from farthing.mixed.harm import PROBE, Harm
from farthing.mixed.journal import Journal
from support.full_disk import files_of_at_most

SETTINGS = {"text": "abc", "windows": [1, 2]}
ONE, TWO = Harm(0.1, {PROBE: 1 / 3, "w8g64": 1e-9}), Harm(2e-17, {PROBE: 0.5, "f16": float("inf")})


def test_figures_are_read_back_bit_for_bit(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "new", SETTINGS)
    journal.add_harm("a", ONE)
    journal.add_divergence({"a": "w8g64", "b": "keep"}, 1 / 7)
    journal.add_harm("b", TWO)
    again = Journal(tmp_path / "new", SETTINGS)
    assert again.harms == {"a": ONE, "b": TWO}
    assert again.divergence({"b": "keep", "a": "w8g64"}) == 1 / 7
    assert again.divergence({"b": "keep", "a": "w6g64"}) is None


def test_other_settings_are_another_file(tmp_path: Path) -> None:
    Journal(tmp_path, SETTINGS).add_harm("a", ONE)
    other = Journal(tmp_path, {**SETTINGS, "text": "abd"})
    assert other.harms == {}
    assert len(list(tmp_path.iterdir())) == 2


def test_a_line_that_was_cut_short_costs_one_figure(tmp_path: Path) -> None:
    journal = Journal(tmp_path, SETTINGS)
    journal.add_harm("a", ONE)
    journal.add_harm("b", TWO)
    text = journal.path.read_text()
    for end in range(len(text)):
        journal.path.write_text(text[:end])
        again = Journal(tmp_path, SETTINGS)
        whole = text[:end].count("\n") + (text[end : end + 1] == "\n")
        assert list(again.harms.items()) == [("a", ONE), ("b", TWO)][: max(0, whole - 1)]
        again.add_harm("c", ONE)
        assert Journal(tmp_path, SETTINGS).harms == {**again.harms, "c": ONE}


def test_lines_that_are_none_of_ours_are_passed_over(tmp_path: Path) -> None:
    journal = Journal(tmp_path, SETTINGS)
    journal.add_harm("a", ONE)
    lines = ["", "[]", "{}", "\x00", '["harm", "b", 1.0]', '["harm", "b", 1.0, {"w4g64": "x"}]',
             '["harm", "b", 1.0, {"w8g64": 1.0}]', json.dumps(["divergence", 1, 2.0]),
             '["harm", "b", NaN, {"w4g64": 1.0}]', '["harm", "b", Infinity, {"w4g64": 1.0}]',
             '["harm", "b", 1.0, {"w4g64": NaN}]', '["harm", "b", 1.0, {"w4g64": Infinity}]',
             '["harm", "b", 1.0, {"w4g64": -1.0}]', '["harm", "b", 1.0, {"w4g64": 1, "f16": NaN}]',
             '["divergence", "b", NaN]', '["divergence", "b", -Infinity]',
             "[" * 100_000]  # fmt: skip
    with journal.path.open("a") as file:
        file.write("\n".join(lines) + "\n")
    again = Journal(tmp_path, SETTINGS)
    assert again.harms == {"a": ONE}
    assert again.divergences == {}


def test_a_file_that_takes_no_more_is_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="File too large") as new, files_of_at_most(1):
        Journal(tmp_path, SETTINGS)
    journal = Journal(tmp_path, SETTINGS)
    with pytest.raises(OSError, match="File too large") as grown, files_of_at_most(100):
        journal.add_harm("a", ONE)
    assert new.value.filename == grown.value.filename == str(journal.path)
