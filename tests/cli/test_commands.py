"""The ``/`` commands: which text is one, and what settings accept."""

from __future__ import annotations

from typing import cast

import pytest

from farthing.cli.conversation.commands import (
    COMMANDS,
    SETTINGS,
    UnknownCommandError,
    change_setting,
    find_command,
    show_settings,
    split_command,
)
from farthing.cli.conversation.loop import Conversation
from farthing.cli.conversation.session import Session
from farthing.errors import InvalidParameterError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/help", ("help", "")),
        ("/?", ("?", "")),
        ("  /set temperature 0.7 ", ("set", "temperature 0.7")),
        ("/system You are\nbrief.", ("system", "You are\nbrief.")),
        ("/etc/passwd is a file", None),
        ("/", None),
        ("// a comment", None),
        ("/1 + 2", None),
        ("hello /help", None),
    ],
)
def test_what_is_a_command(text: str, expected: tuple[str, str] | None) -> None:
    assert split_command(text) == expected


def test_every_command_is_found_under_each_of_its_names() -> None:
    names = [name for command in COMMANDS for name in command.names]
    assert len(names) == len(set(names))
    for command in COMMANDS:
        assert command.help
        for name in command.names:
            assert find_command(name) is command
            assert split_command(f"/{name}") == (name, "")


def test_the_promised_commands_are_there() -> None:
    for name in (
        "help",
        "?",
        "clear",
        "system",
        "save",
        "load",
        "stats",
        "set",
        "think",
        "model",
        "bye",
    ):
        assert name in find_command(name).names


def test_an_unknown_command_says_how_to_list_them() -> None:
    with pytest.raises(UnknownCommandError, match="no command /fly; /help"):
        find_command("fly")


def test_settings_change_and_show_themselves() -> None:
    session = Session("m")
    for text in ("temperature 0.7", "max_tokens 99", "seed 7", "stop END OF TEXT"):
        change_setting(session, text)
    assert session.sampling.stop == ("END OF TEXT",)
    shown = show_settings(session)
    assert shown.startswith("temperature 0.7\nmax_tokens 99\nseed 7\nstop 'END OF TEXT'\ntop_k 0\n")
    change_setting(session, "seed none")
    change_setting(session, "stop none")
    shown = show_settings(session)
    assert shown.startswith("temperature 0.7\nmax_tokens 99\nseed none\nstop none\n")
    for line in shown.splitlines():  # what is shown can be typed
        change_setting(session, line)
    assert show_settings(session) == shown


def test_every_setting_can_be_changed_and_reaches_the_engine() -> None:
    session = Session("m")
    changed = {
        "top_k": 40,
        "top_p": 0.95,
        "min_p": 0.05,
        "typical_p": 0.9,
        "repetition_penalty": 1.1,
        "presence_penalty": 0.5,
        "frequency_penalty": -0.5,
        "dry_multiplier": 0.8,
    }
    for name, value in changed.items():
        change_setting(session, f"{name} {value}")
    params = session.sampling.params()
    assert {name: getattr(params, name) for name in changed} == changed
    assert set(SETTINGS) == {*changed, "temperature", "max_tokens", "seed", "stop"}


@pytest.mark.parametrize(
    "text",
    [
        "temperature",
        "temperature hot",
        "temperature -1",
        "temperature nan",
        "temperature inf",
        "temperature 1001",
        "seed -1",
        "max_tokens 0",
        "max_tokens 1.5",
        "seed x",
        "stop",
        "top_p 1.5",
        "top_k 0.5",
        "repetition_penalty 0",
        "colour red",
    ],
)
def test_settings_refuse_what_they_cannot_be(text: str) -> None:
    session = Session("m")
    before = show_settings(session)
    with pytest.raises(InvalidParameterError):
        change_setting(session, text)
    assert show_settings(session) == before


@pytest.mark.parametrize("name", ["save", "load"])
@pytest.mark.parametrize("file", ["", "a\0b", "~nouser/x"])
def test_what_is_no_file_name_is_refused(name: str, file: str) -> None:
    with pytest.raises(InvalidParameterError):
        find_command(name).run(cast(Conversation, None), file)
