"""Typing: lines, blocks, keys."""

from __future__ import annotations

import io
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput

from farthing.cli.conversation.reader import (
    EditingReader,
    PlainReader,
    history_file,
    is_open_block,
    without_fence,
)


@pytest.mark.parametrize(
    ("text", "is_open"),
    [
        ("hello", False),
        ('"""', True),
        ('"""a\nb', True),
        ('"""a\nb"""', False),
        ('""""', True),
        ('""""""', False),
        ('say """', False),
    ],
)
def test_open_blocks(text: str, is_open: bool) -> None:
    assert is_open_block(text) is is_open


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" hello \n", "hello"),
        ('"""\na\n  b\n"""\n', "a\n  b"),
        ('"""a"""', "a"),
        ('""""""', ""),
        ('say """x"""', 'say """x"""'),
    ],
)
def test_fences_are_taken_off(text: str, expected: str) -> None:
    assert without_fence(text) == expected


def test_plain_lines_and_blocks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO('one\n\n"""two\n  three\n"""\n"""four\nfive'))
    reader = PlainReader()
    assert [reader.read() for _ in range(5)] == ["one", "", "two\n  three", "four\nfive", None]
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(">>> >>> >>> ... ... >>> ... ")


@pytest.mark.parametrize(
    ("line", "agreed"), [("\n", True), ("Yes\n", True), ("n\n", False), ("", False)]
)
def test_plain_confirmation(monkeypatch: pytest.MonkeyPatch, line: str, agreed: bool) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(line))
    assert PlainReader().confirm("Sure?") is agreed


@contextmanager
def keyboard() -> Iterator[PipeInput]:
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        yield keys


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("hello\r", "hello"),
        ("hello\n", "hello"),
        ("one\x1b\rtwo\r", "one\ntwo"),
        ('"""def f():\r  pass\r"""\r', "def f():\n  pass"),
        ("\x1b[200~pasted\nlines\x1b[201~\r", "pasted\nlines"),
        ("\x04", None),
    ],
)
def test_keys(typed: str, expected: str | None) -> None:
    with keyboard() as keys:
        reader = EditingReader(None)
        keys.send_text(typed)
        assert reader.read() == expected


def test_ctrl_c_at_the_prompt() -> None:
    with keyboard() as keys:
        reader = EditingReader(None)
        keys.send_text("half a li\x03")
        with pytest.raises(KeyboardInterrupt):
            reader.read()


@pytest.mark.parametrize(
    ("typed", "agreed"), [("\r", True), ("y\r", True), ("no\r", False), ("\x04", False)]
)
def test_confirmation(typed: str, agreed: bool) -> None:
    with keyboard() as keys:
        reader = EditingReader(None)
        keys.send_text(typed)
        assert reader.confirm("Sure?") is agreed


def test_the_history_outlives_the_reader(tmp_path: Path) -> None:
    history = tmp_path / "history"
    with keyboard() as keys:
        keys.send_text("first\r")
        assert EditingReader(history).read() == "first"
    with keyboard() as keys:
        keys.send_text("\x1b[A\r")  # up
        assert EditingReader(history).read() == "first"


def test_the_history_file_is_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FARTHING_HOME", str(tmp_path / "home"))
    path = history_file()
    assert path == tmp_path / "home" / "chat_history"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_no_history_where_nothing_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FARTHING_HOME", str(tmp_path / "file"))
    assert history_file() is None
