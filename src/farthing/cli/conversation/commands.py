"""The ``/`` commands of the chat, as a table: help, completion and dispatch all walk it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farthing.cli.generation import Sampling
from farthing.cli.template_arguments import require_switch
from farthing.errors import FarthingError, InvalidParameterError

if TYPE_CHECKING:
    from farthing.cli.conversation.loop import Conversation
    from farthing.cli.conversation.session import Session

SETTINGS = tuple(field.name for field in fields(Sampling))


class UnknownCommandError(FarthingError):
    """No command of that name; the message says how to list them."""


@dataclass(frozen=True, slots=True)
class Command:
    """``run`` gets the rest of the line; what it returns is shown. ``leaves`` ends the chat."""

    names: tuple[str, ...]
    argument: str
    help: str
    run: Callable[[Conversation, str], str]
    leaves: bool = False


def split_command(text: str) -> tuple[str, str] | None:
    """(name, rest) if ``text`` is a command: ``/etc/passwd is a file`` is a message."""
    found = re.fullmatch(r"/([a-z?]+)(?:\s+(.*))?", text.strip(), re.DOTALL)
    return (found[1], (found[2] or "").strip()) if found else None


def find_command(name: str) -> Command:
    """The command of that name.

    Raises:
        UnknownCommandError: there is none.
    """
    for command in COMMANDS:
        if name in command.names:
            return command
    raise UnknownCommandError(f"no command /{name}; /help lists them")


def change_setting(session: Session, text: str) -> None:
    """Applies ``"temperature 0.7"`` and the like.

    Raises:
        InvalidParameterError: no such setting, or not a value it can have.
    """
    name, _, value = text.partition(" ")
    changed = replace(session.sampling, **{_known(name): _setting(name, value.strip())})
    changed.params()  # has the limits of each
    session.sampling = changed


def _known(name: str) -> str:
    if name not in SETTINGS:
        raise InvalidParameterError(f"no setting '{name}'; there are {', '.join(SETTINGS)}")
    return name


def _setting(name: str, text: str) -> Any:
    if name == "stop":
        return () if text == "none" else (text,)
    if name == "seed" and text == "none":
        return None
    whole = name in ("max_tokens", "seed", "top_k")
    kind, wanted = (int, "a whole number") if whole else (float, "a number")
    try:
        return kind(text)
    except ValueError:
        raise InvalidParameterError(f"{name} is {wanted}, not '{text}'") from None


def show_settings(session: Session) -> str:
    """The settings, one a line, as ``/set`` takes them."""
    return "\n".join(f"{name} {_shown(getattr(session.sampling, name))}" for name in SETTINGS)


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(map(repr, value)) or "none"
    if isinstance(value, float):
        return f"{value:g}"
    return "none" if value is None else str(value)


def _help(_conversation: Conversation, _text: str) -> str:
    lines = []
    for command in COMMANDS:
        names = ", ".join(f"/{name}" for name in command.names)
        lines.append((f"{names} {command.argument}".rstrip(), command.help))
    lines += [
        ('"""', "Begin a message of several lines; three quotes more end it"),
        ("Alt-Enter", "A new line in the message"),
        ("Ctrl-C", "End the answer; at the prompt, forget the line"),
        ("Ctrl-D", "Leave"),
    ]
    width = max(len(left) for left, _ in lines)
    return "\n".join(f"{left:<{width}}  {right}" for left, right in lines)


def _clear(conversation: Conversation, _text: str) -> str:
    conversation.session.messages.clear()
    return "The conversation is empty; the system message stays."


def _system(conversation: Conversation, text: str) -> str:
    session = conversation.session
    if not text:
        return session.system or "There is no system message."
    session.system = None if text == "none" else text
    return "The system message is removed." if text == "none" else "The system message is set."


def _save(conversation: Conversation, text: str) -> str:
    path = _path("save", text)
    if path.exists() and not conversation.confirm(f"{path} exists. Replace it?"):
        return "Nothing is saved."
    conversation.session.save(path)
    return f"{len(conversation.session.messages)} messages are in {path}."


def _load(conversation: Conversation, text: str) -> str:
    path = _path("load", text)
    conversation.session.load(path)
    return f"{len(conversation.session.messages)} messages are from {path}."


def _path(command: str, text: str) -> Path:
    if not text:
        raise InvalidParameterError(f"/{command} needs a file name")
    if "\0" in text:
        raise InvalidParameterError("a file name has no zero byte")
    try:
        return Path(text).expanduser()
    except RuntimeError:  # no such user
        raise InvalidParameterError(f"no home folder for '{text}'") from None


def _stats(conversation: Conversation, _text: str) -> str:
    return conversation.describe_totals()


def _set(conversation: Conversation, text: str) -> str:
    if text:
        change_setting(conversation.session, text)
    return show_settings(conversation.session)


def _think(conversation: Conversation, text: str) -> str:
    values = {"on": True, "off": False, "auto": None}
    variables = conversation.session.variables
    if text:
        if text not in values:
            raise InvalidParameterError(f"thinking is on, off or auto, not '{text}'")
        if values[text] is not None:
            require_switch(conversation.llm)
        variables.think = values[text]
    state = next(name for name, value in values.items() if value is variables.think)
    return f"think {state}"


def _model(conversation: Conversation, text: str) -> str:
    if text:
        conversation.change_model(text)
    return conversation.describe_model()


def _bye(_conversation: Conversation, _text: str) -> str:
    return ""


COMMANDS = (
    Command(("help", "?"), "", "List the commands", _help),
    Command(("clear",), "", "Forget the conversation", _clear),
    Command(("system",), "[TEXT]", "Show the system message, or set it (none removes it)", _system),
    Command(("save",), "FILE", "Write the conversation to a file", _save),
    Command(("load",), "FILE", "Go on with a saved conversation", _load),
    Command(("set",), "[NAME VALUE]", "Show the settings, or change one: temperature 0.7", _set),
    Command(("think",), "[on|off|auto]", "Show or set whether the model thinks first", _think),
    Command(("stats",), "", "Tokens and speed so far", _stats),
    Command(("model",), "[MODEL]", "Show the model, or go on with another", _model),
    Command(("bye", "exit", "quit"), "", "Leave", _bye, leaves=True),
)
