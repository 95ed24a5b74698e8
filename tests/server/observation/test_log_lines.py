"""What a record becomes; that no text in it ends a line or passes for another."""

from __future__ import annotations

import contextvars
import json
import logging
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farthing.server.observation.log_lines import JsonLines, TextLines
from farthing.server.observation.request_context import enter_request

LINE_ENDS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
"""Where str.splitlines and one or another reader end a line."""

HOSTILE = [
    'x\n{"level": "critical", "message": "forged"}',
    "x\r\n12:00:00 CRITICAL forged",
    "\x1b[2J\x1b[31mred\x07\x00",
    "\ud800 half a character",
    '"}, {"',
    "\u202egnp.exe",
    LINE_ENDS,
    "\\u000a \\n",
]


def record(message: object = "hello", *args: object, **extra: Any) -> logging.LogRecord:
    made = logging.LogRecord("farthing.test", logging.INFO, "f.py", 1, message, args, None)
    made.__dict__.update(extra)
    return made


def parsed(made: logging.LogRecord) -> dict[str, Any]:
    line = JsonLines().format(made)
    assert len(line.splitlines()) == 1
    line.encode()  # UTF-8 holds it
    entry = json.loads(line)
    assert isinstance(entry, dict)
    json.dumps(entry, ensure_ascii=False).encode()  # and all that it says
    return entry


def test_what_a_line_has() -> None:
    made = record("%d of %s", 3, "four", created=1_700_000_000.25)
    entry = parsed(made)
    assert entry == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "info",
        "logger": "farthing.test",
        "message": "3 of four",
    }
    assert datetime.fromisoformat(entry["time"]) == datetime.fromtimestamp(1_700_000_000.25, UTC)


def test_fields_are_entries_of_their_own() -> None:
    entry = parsed(record(fields={"status": 200, "list": ["a", 1, None], "deep": {"x": 0.5}}))
    assert (entry["status"], entry["list"], entry["deep"]) == (200, ["a", 1, None], {"x": 0.5})


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_within_its_value(text: str) -> None:
    whole = "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)
    for made in (record(text), record("%s", text), record(fields={"message2": text})):
        entry = parsed(made)
        assert whole in (entry["message"], entry.get("message2"))
        assert entry["level"] == "info"
    lines = TextLines().format(record(text, fields={"other": text}))
    assert len(lines.splitlines()) == 1
    assert lines.replace("\ufffd", "?").isprintable()
    assert lines.count(" CRITICAL") == text.count(" CRITICAL") * 2, "in one line, with its text"
    assert lines.split()[1] == "INFO"


@given(st.text() | st.text(st.sampled_from(LINE_ENDS + '"\\{}\x1b\x7f\x9b\ud800a')))
def test_any_text_stays_within_its_value(text: str) -> None:
    entry = parsed(record(text, fields={"field": [text, {text: text}]}))
    clean = "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)
    assert entry["message"] == clean
    assert entry["field"] == [clean, {clean: clean}]
    line = TextLines().format(record(text, fields={"field": text}))
    assert len(line.splitlines()) == 1
    assert "\x1b" not in line
    line.encode()


@given(st.text(st.sampled_from(LINE_ENDS + "ab \x1b"), min_size=1))
def test_an_exception_cannot_forge_a_line(text: str) -> None:
    try:
        raise ValueError(text)
    except ValueError as error:
        made = record("failed", exc_info=(type(error), error, error.__traceback__))
    entry = parsed(made)
    assert "ValueError" in entry["exception"]
    first, *rest = TextLines().format(made).splitlines()
    assert first.endswith("failed")
    assert rest
    assert all(line.startswith("    ") and "\x1b" not in line for line in rest)


def test_an_exception_says_where_and_repeats_little_of_what_came() -> None:
    prompt = "my secret diary " * 20
    try:
        raise ValueError(f"no number: {prompt!r}")
    except ValueError as error:
        made = record("failed", exc_info=(type(error), error, error.__traceback__))
    text = parsed(made)["exception"]
    assert "test_log_lines.py" in text
    assert "ValueError: no number: 'my secret diary" in text
    assert text.count("secret") == 4, "64 bytes of it at most"


def test_places_are_told_whole(tmp_path: Path) -> None:
    path = tmp_path / ("a" * 100) / "module.py"
    try:
        exec(compile("1 / 0", str(path), "exec"))
    except ZeroDivisionError as error:
        made = record("failed", exc_info=(type(error), error, error.__traceback__))
    assert f'File "{path}", line 1, in <module>' in parsed(made)["exception"]


def test_a_very_long_traceback_is_cut_in_the_middle() -> None:
    error: Exception = ValueError("innermost")
    for i in range(300):
        try:
            raise ValueError(f"cause {i}") from error
        except ValueError as raised:
            error = raised
    made = record("failed", exc_info=(type(error), error, error.__traceback__))
    lines = parsed(made)["exception"].splitlines()
    assert len(lines) == 201
    assert "innermost" in lines[0]
    assert lines[-1] == "ValueError: cause 299"


class Unshowable:
    def __str__(self) -> str:
        raise RuntimeError("never")

    __repr__ = __str__


class UnshowableError(Exception):
    __str__ = __repr__ = Unshowable.__str__


@pytest.mark.parametrize(
    "made",
    [
        record("%d", "no number"),
        record("%s %s", "one"),
        record("%s", Unshowable()),
        record(Unshowable()),
        record(fields={"x": Unshowable(), "nan": math.nan, "inf": -math.inf, "bytes": b"x"}),
        record(fields="no mapping"),
        record("x", exc_info=(UnshowableError, UnshowableError(), None)),
    ],
)
def test_what_cannot_be_shown_is_no_reason_to_fail(made: logging.LogRecord) -> None:
    entry = parsed(made)
    assert entry["logger"] == "farthing.test"
    assert TextLines().format(made)


def test_numbers_json_has_not_are_words() -> None:
    entry = parsed(record(fields={"nan": math.nan, "inf": math.inf}))
    assert (entry["nan"], entry["inf"]) == ("nan", "inf")


def test_the_request_in_whose_course_it_was_logged_is_named() -> None:
    def within() -> None:
        state: dict[str, str] = {}
        enter_request(state)
        assert "request_id" not in parsed(record())
        state["request_id"] = "r\n1"
        assert parsed(record())["request_id"] == "r\n1"
        assert TextLines().format(record()).endswith('request_id="r\\n1"')
        assert parsed(record(fields={"request_id": "other"}))["request_id"] == "other"

    contextvars.Context().run(within)
    assert "request_id" not in parsed(record())


def test_text_for_people() -> None:
    fields = {"path": "/v1/models", "seconds": 0.12345678, "name": "two words", "none": None}
    line = TextLines().format(record("http", fields=fields))
    assert line[8:] == ' INFO     http path=/v1/models seconds=0.123457 name="two words" none=null'
