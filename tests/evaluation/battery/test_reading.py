"""Batteries of one's own: what is taken, and what is said of what is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import farthing.evaluation.battery.reading as reading
from farthing.errors import InvalidParameterError
from farthing.evaluation.battery import Battery, Item, load_battery

GOOD = '{"question": "Who?", "answers": ["Me", "I"]}'


def load(folder: Path, text: str | bytes) -> Battery:
    path = folder / "mine.jsonl"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return load_battery(path)


def test_a_file_of_one_s_own_is_a_battery(tmp_path: Path) -> None:
    found = load(
        tmp_path,
        f'{GOOD}\r\n\n  {{"question": " Où? ", "answer": "Là", "source": "me", "level": 3}}\n',
    )
    assert found.items == (Item("Who?", ("Me", "I")), Item("Où?", ("Là",), "me"))
    assert found.name == "mine.jsonl"
    assert found.source == str(tmp_path / "mine.jsonl")


def test_a_byte_order_mark_and_a_path_as_text_are_taken(tmp_path: Path) -> None:
    load(tmp_path, b"\xef\xbb\xbf" + GOOD.encode())
    assert len(load_battery(str(tmp_path / "mine.jsonl")).items) == 1


def test_a_file_named_as_a_built_in_battery_is_reached_by_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "short").write_text(GOOD)
    monkeypatch.chdir(tmp_path)
    assert len(load_battery("short").items) == 16
    assert len(load_battery("./short").items) == 1


ANSWERS = "needs answers, a list of 1 to 100 texts, or answer, one text"
TEXT = "must be a text of 1 to"
BAD = [
    ("[1]", "is not a JSON object"),
    ("{", "is not JSON"),
    ('{"question": "Who?"}', ANSWERS),
    ('{"question": "Who?", "answers": "Me"}', ANSWERS),
    ('{"question": "Who?", "answers": []}', ANSWERS),
    (json.dumps({"question": "Who?", "answers": ["Me"] * 101}), ANSWERS),
    ('{"question": "Who?", "answers": [1]}', f"an answer {TEXT} 200 characters"),
    ('{"question": "Who?", "answer": "?!"}', f"an answer {TEXT} 200 characters"),
    (json.dumps({"question": "Who?", "answer": "a" * 201}), f"an answer {TEXT} 200 characters"),
    ('{"answers": ["Me"]}', f"question {TEXT} 4,000 characters"),
    ('{"question": " ", "answers": ["Me"]}', f"question {TEXT} 4,000 characters"),
    (json.dumps({"question": "a" * 4001, "answer": "b"}), f"question {TEXT} 4,000 characters"),
    ('{"question": "Where?", "answers": ["a"], "answer": "b"}', "has both answer and answers"),
    ('{"question": "Where?", "answer": "b", "source": 1}', "source must be a text"),
    ('{"question": "Where?", "question": "Who?", "answer": "b"}', "duplicate key 'question'"),
    ('{"question": "WHO", "answer": "b"}', "asks what line 1 asks"),
    (b'{"question": "\xff", "answer": "b"}', "UTF-8"),
]


@pytest.mark.parametrize(("line", "problem"), BAD)
def test_a_bad_line_is_named(tmp_path: Path, line: str | bytes, problem: str) -> None:
    raw = line if isinstance(line, bytes) else line.encode()
    with pytest.raises(InvalidParameterError) as raised:
        load(tmp_path, GOOD.encode() + b"\n\n" + raw + b"\n" + GOOD.encode())
    said = str(raised.value)
    assert said.startswith(f"{tmp_path / 'mine.jsonl'}, line 3: ")
    assert problem in said
    assert "\n" not in said
    assert len(said) < 400


def test_a_file_without_questions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameterError, match="has no questions"):
        load(tmp_path, "\n \n")


def test_a_name_that_is_nothing_says_what_there_is() -> None:
    with pytest.raises(InvalidParameterError, match="'medium': no such file; give short or long"):
        load_battery("medium")


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="directory") as raised:
        load_battery(tmp_path)
    assert raised.value.filename == str(tmp_path)


def test_files_and_batteries_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "\n".join(f'{{"question": "q{n}", "answer": "a"}}' for n in range(4))
    monkeypatch.setattr(reading, "MAX_ITEMS", 3)
    with pytest.raises(InvalidParameterError, match="line 4: is one question too many, at most 3"):
        load(tmp_path, lines)
    monkeypatch.setattr(reading, "MAX_FILE", len(lines) - 1)
    with pytest.raises(InvalidParameterError, match="this file is larger"):
        load(tmp_path, lines)
