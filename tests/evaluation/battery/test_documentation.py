"""What docs/quality.md says of batteries of one's own, done."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from farthing.errors import InvalidParameterError
from farthing.evaluation.battery import Battery, is_right, load_battery
from farthing.evaluation.battery.prompt import MAX_ANSWER_TOKENS
from farthing.evaluation.battery.reading import (
    MAX_ANSWER,
    MAX_ANSWERS,
    MAX_FILE,
    MAX_ITEMS,
    MAX_QUESTION,
)
from farthing.evaluation.statistics import smallest_difference_seen
from farthing.evaluation.verdicts import percent

PAGE = Path(__file__).parents[3] / "docs" / "quality.md"
TEXT = PAGE.read_text().split("## A battery of one's own\n")[1].split("\n## ")[0]
LINES = TEXT.split("```json\n")[1].split("```")[0]


@pytest.fixture
def battery(tmp_path: Path) -> Battery:
    (tmp_path / "mine.jsonl").write_text(LINES)
    return load_battery(tmp_path / "mine.jsonl")


def test_its_lines_are_a_battery(battery: Battery) -> None:
    assert [item.answers for item in battery.items] == [
        ("Bamako",),
        ("8",),
        ("J. R. R. Tolkien", "Tolkien"),
    ]
    fields = set(re.findall(r"^\| `(\w+)` \|", TEXT, re.MULTILINE))
    assert fields == {key for line in LINES.splitlines() for key in json.loads(line)}


def test_answers_count_as_it_says(battery: Battery) -> None:
    rows = re.findall(r"^\| (\d) \| `(.+)` \| (right|wrong) \|$", TEXT, re.MULTILINE)
    assert len(rows) == 12
    for number, said, counts in rows:
        assert is_right(battery.items[int(number) - 1], said) is (counts == "right"), said


def test_its_limits_are_those_of_the_code() -> None:
    for limit in (
        f"up to {MAX_QUESTION:,} characters",
        f"1 to {MAX_ANSWERS} texts of up to {MAX_ANSWER} characters",
        f"{MAX_ITEMS:,} questions and {MAX_FILE >> 20} MiB at most",
        f"up to {MAX_ANSWER_TOKENS} tokens",
    ):
        assert limit in " ".join(TEXT.split()), limit


def test_it_promises_what_a_battery_can_see() -> None:
    text = " ".join(TEXT.split())
    losses = [smallest_difference_seen(n) for n in (16, 100, 581)]
    first, second, third = (percent(loss) for loss in losses if loss is not None)
    assert f"of {first} would be found in 16 questions" in text
    assert f"of {second} in 100, of {third} in 581" in text
    assert smallest_difference_seen(5) is None
    assert smallest_difference_seen(6) is not None


def test_a_wrong_line_is_told_as_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first = LINES.splitlines()[0]
    Path("mine.jsonl").write_text(f'{first}\n{{"question": "How many bits does a byte have?"}}\n')
    with pytest.raises(InvalidParameterError) as caught:
        load_battery("mine.jsonl")
    assert f"farthing: error: {caught.value}\n" in TEXT
