"""Batteries: those that ship with the package, and JSON lines of one's own."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import NoReturn

from farthing.errors import InvalidParameterError
from farthing.evaluation.battery.items import Battery, Item
from farthing.evaluation.battery.words import words
from farthing.files.json_cursor import JsonCursor

BUILT_IN = {
    "short": ("written for Farthing", "Apache-2.0"),
    "long": (
        "facts of the Debian package bsdgames 2.17-29 and questions of the PyPI package "
        "chatterbot-corpus 1.3.3, checked",
        "BSD-3-Clause",
    ),
}
"""Source and licence of each built-in battery, by its name."""

MAX_FILE = 16 << 20  # bytes
MAX_ITEMS = 20_000
MAX_QUESTION = 4_000  # characters
MAX_ANSWER = 200
MAX_ANSWERS = 100  # of a question


def load_battery(name: str | Path) -> Battery:
    """The built-in battery ``short`` (16 questions) or ``long`` (several hundred), or a file's.

    Of a file each line is a JSON object with ``question`` and ``answers``, a list of texts, or
    ``answer``, one text; ``source`` may be added, and what else is there is passed over. Raises
    :class:`InvalidParameterError` naming file and line, and ``OSError``.
    """
    if isinstance(name, str) and name in BUILT_IN:
        data = files("farthing.evaluation.battery").joinpath("data", f"{name}.jsonl").read_bytes()
        return Battery(name, _items(Path(f"{name}.jsonl"), data), *BUILT_IN[name])
    path = Path(name)
    return Battery(path.name, _items(path, _read(path)), str(path), "of its owner")


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE + 1)
    except FileNotFoundError:
        built_in = " or ".join(BUILT_IN)
        raise InvalidParameterError(
            f"battery {str(path)!r}: no such file; give {built_in}, or a file of JSON lines"
        ) from None
    except OSError as error:  # that of a read does not name the file
        raise OSError(error.errno, error.strerror, str(path)) from None
    if len(data) > MAX_FILE:
        raise InvalidParameterError(
            f"{path}: a battery may take {MAX_FILE >> 20} MiB, this file is larger"
        )
    return data.removeprefix(b"\xef\xbb\xbf")


def _items(path: Path, data: bytes) -> tuple[Item, ...]:
    items: list[Item] = []
    seen: dict[tuple[str, ...], int] = {}
    for number, raw in enumerate(data.split(b"\n"), 1):
        if not raw.strip():
            continue
        place = f"{path}, line {number}"
        item = _item(place, raw)
        asked = tuple(word.text for word in words(item.question))
        first = seen.setdefault(asked, number)
        if first != number:
            raise _wrong(place, f"asks what line {first} asks; a question counts once")
        if len(items) == MAX_ITEMS:
            raise _wrong(place, f"is one question too many, at most {MAX_ITEMS:,} are taken")
        items.append(item)
    if not items:
        raise _wrong(str(path), "has no questions, at least one is needed")
    return tuple(items)


class _Cursor(JsonCursor):
    """The JSON of a line, whose errors name the line."""

    def __init__(self, place: str, raw: bytes) -> None:
        self.place = place
        super().__init__(Path(), raw)

    def fail(self, problem: str, at: int | None = None) -> NoReturn:
        raise _wrong(self.place, problem if at is None else f"{problem}, at byte {at}")


def _item(place: str, raw: bytes) -> Item:
    values = _Cursor(place, raw).only_object()
    question = _text(place, "question", values.get("question"), MAX_QUESTION)
    answers = values.get("answers")
    if "answer" in values:
        if answers is not None:
            raise _wrong(place, "has both answer and answers, one of them is needed")
        answers = [values["answer"]]
    if not isinstance(answers, list) or not 1 <= len(answers) <= MAX_ANSWERS:
        raise _wrong(
            place, f"needs answers, a list of 1 to {MAX_ANSWERS} texts, or answer, one text"
        )
    right = tuple(_text(place, "an answer", each, MAX_ANSWER) for each in answers)
    source = values.get("source", "")
    if not isinstance(source, str):
        raise _wrong(place, "source must be a text")
    return Item(question, right, source)


def _text(place: str, what: str, value: object, longest: int) -> str:
    if not isinstance(value, str) or len(value) > longest or not words(value):
        raise _wrong(
            place, f"{what} must be a text of 1 to {longest:,} characters, with a letter or digit"
        )
    return value.strip()


def _wrong(place: str, problem: str) -> InvalidParameterError:
    return InvalidParameterError(f"{place}: {problem}")
