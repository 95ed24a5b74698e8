"""What a conversation remembers, forgets and keeps in a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from farthing.cli.conversation.session import ConversationFileError, Message, Session
from farthing.cli.generation import Answer


def count_words(messages: list[Message]) -> int:
    return sum(len(message["content"].split()) for message in messages)


def conversation(*words: int, system: str | None = None) -> Session:
    """Messages of so many words, user and assistant in turn."""
    session = Session("m", system)
    for index, count in enumerate(words):
        role = "assistant" if index % 2 else "user"
        session.messages.append({"role": role, "content": "w " * count})
    return session


def test_the_system_message_comes_first() -> None:
    session = conversation(1, system="Be brief.")
    assert session.for_model()[0] == {"role": "system", "content": "Be brief."}
    session.system = None
    assert [message["role"] for message in session.for_model()] == ["user"]


def test_an_answer_is_remembered_and_silence_is_not() -> None:
    session = Session("m")
    session.ask("a")
    session.record(Answer("b", "stop", None))
    session.ask("c")
    session.record(Answer("", None, None, interrupted=True))
    assert [message["content"] for message in session.messages] == ["a", "b"]


def test_withdrawing_takes_the_last_question_and_what_followed() -> None:
    session = conversation(1, 2, 3, 4)
    session.withdraw()
    assert session.messages == conversation(1, 2).messages
    session.withdraw()
    session.withdraw()
    assert session.messages == []


@pytest.mark.parametrize(
    ("room", "dropped"), [(100, 2), (40, 2), (39, 4), (20, 4), (19, 0), (0, 0)]
)
def test_whole_turns_are_dropped_from_the_oldest_on(room: int, dropped: int) -> None:
    session = conversation(10, 10, 10, 10, 10, system="s " * 10)
    assert session.droppable(count_words, room) == dropped


def test_the_last_question_is_never_dropped() -> None:
    assert conversation(50).droppable(count_words, 10) == 0
    assert conversation(5, 5, 50).droppable(count_words, 10) == 0


def test_a_saved_conversation_is_the_same_when_loaded(tmp_path: Path) -> None:
    session = conversation(1, 2, 3, 4, system="水 \u2028 🌾")
    path = tmp_path / "talk.json"
    session.save(path)
    other = conversation(9)
    other.load(path)
    assert (other.system, other.messages) == (session.system, session.messages)
    assert [file.name for file in tmp_path.iterdir()] == ["talk.json"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "not JSON"),
        ("[]", "no list 'messages'"),
        ('{"messages": 3}', "no list 'messages'"),
        ('{"messages": [], "system": 3}', "'system' is not text"),
        ('{"messages": [{"role": "assistant", "content": "x"}]}', "message 1"),
        ('{"messages": [{"role": "user", "content": null}]}', "message 1"),
        ('{"messages": ["x"]}', "message 1"),
        ('{"messages": [{"role": "user", "content": "x"}]}', "no answer"),
        ('{"messages": [{"role": "user", "content": "\\ud800"}]}', "message 1 is not UTF-8"),
        ('{"messages": [], "system": "\\udfff"}', "'system' is not UTF-8"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_what_is_no_conversation_changes_nothing(
    tmp_path: Path, content: str, problem: str
) -> None:
    path = tmp_path / "talk.json"
    path.write_text(content)
    session = conversation(1, 2, system="s")
    with pytest.raises(ConversationFileError, match=problem) as error:
        session.load(path)
    assert str(path) in str(error.value)
    assert (session.system, session.messages) == ("s", conversation(1, 2).messages)


def test_files_that_cannot_be_read_or_written_are_told(tmp_path: Path) -> None:
    path = tmp_path / "no folder" / "talk.json"
    with pytest.raises(ConversationFileError, match="No such file"):
        conversation(1, 2).load(path)
    with pytest.raises(ConversationFileError, match="No such file"):
        conversation(1, 2).save(path)


def test_saving_over_a_folder_leaves_no_other_file(tmp_path: Path) -> None:
    (tmp_path / "talk.json").mkdir()
    with pytest.raises(ConversationFileError):
        conversation(1, 2).save(tmp_path / "talk.json")
    assert [file.name for file in tmp_path.iterdir()] == ["talk.json"]


@pytest.mark.parametrize("cause", ["half a character", "Ctrl-C"])
def test_what_cannot_be_saved_leaves_no_other_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cause: str
) -> None:
    session = conversation(1, 2)
    expected: type[BaseException] = ConversationFileError
    if cause == "Ctrl-C":
        expected = KeyboardInterrupt

        def replace(_path: Path, _target: Path) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(Path, "replace", replace)
    else:
        session.messages[0]["content"] = "\ud800"
    with pytest.raises(expected):
        session.save(tmp_path / "talk.json")
    assert list(tmp_path.iterdir()) == []


def test_a_saved_conversation_is_plain_json(tmp_path: Path) -> None:
    path = tmp_path / "talk.json"
    conversation(1, 1).save(path)
    assert json.loads(path.read_text(encoding="utf-8")) == {
        "model": "m",
        "system": None,
        "messages": [
            {"role": "user", "content": "w "},
            {"role": "assistant", "content": "w "},
        ],
    }
