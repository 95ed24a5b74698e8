"""Reading what the user types: edited lines on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

FENCE = '"""'
PROMPT = ">>> "
CONTINUATION = "... "


class Reader(Protocol):
    """Where a conversation's input comes from."""

    def read(self) -> str | None:
        """The next message or command; None at the end. Ctrl-C raises KeyboardInterrupt."""
        ...

    def confirm(self, question: str) -> bool:
        """Whether the user agrees; Enter alone does."""
        ...


def open_reader() -> Reader:
    """A line editor if there is a terminal to edit on."""
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if terminal and os.environ.get("TERM") != "dumb":
        return EditingReader(history_file())
    return PlainReader()


def history_file() -> Path | None:
    """The file of earlier messages in the cache folder; None if it cannot be written."""
    from farthing.download.settings import DownloadSettings

    path = DownloadSettings.from_environment().home / "chat_history"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError:
        return None
    os.close(descriptor)
    return path


def is_open_block(text: str) -> bool:
    """Whether ``text`` begins a block of three quotes that it does not end."""
    stripped = text.strip()
    return stripped.startswith(FENCE) and not (
        len(stripped) >= 2 * len(FENCE) and stripped.endswith(FENCE)
    )


def without_fence(text: str) -> str:
    """The inside of a block of three quotes; other text as it is, without space around it."""
    stripped = text.strip()
    if stripped.startswith(FENCE) and not is_open_block(text):
        return stripped.removeprefix(FENCE).removesuffix(FENCE).strip("\n")
    return stripped


class PlainReader:
    """Lines of stdin; the prompt goes to stderr, since stdout is the answers'."""

    def read(self) -> str | None:
        """A line, or the lines of a block of three quotes."""
        text = self._line(PROMPT)
        if text is None:
            return None
        while is_open_block(text):
            line = self._line(CONTINUATION)
            if line is None:
                return text.strip().removeprefix(FENCE).strip("\n")
            text += line
        return without_fence(text)

    def confirm(self, question: str) -> bool:
        """Asks on stderr; no answer is no."""
        line = self._line(f"{question} [Y/n] ")
        return line is not None and line.strip().lower() in ("", "y", "yes")

    def _line(self, prompt: str) -> str | None:
        print(prompt, end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            print(file=sys.stderr)  # the prompt's line ends here
        return line or None


class EditingReader:
    """A line editor with history; Alt-Enter or an open block of three quotes begins a new line."""

    def __init__(self, history: Path | None) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.completion import WordCompleter
        from prompt_toolkit.history import FileHistory, History, InMemoryHistory

        from farthing.cli.conversation.commands import COMMANDS

        names = [f"/{name}" for command in COMMANDS for name in command.names]
        store: History = FileHistory(str(history)) if history else InMemoryHistory()
        self._session: PromptSession[str] = PromptSession(
            history=store,
            completer=WordCompleter(names, sentence=True),
            complete_while_typing=False,
            multiline=True,
            prompt_continuation=_continuation,
            key_bindings=_key_bindings(),
            enable_history_search=True,
        )

    def read(self) -> str | None:
        """What was typed until Enter; None on Ctrl-D."""
        try:
            return without_fence(self._session.prompt(PROMPT))
        except EOFError:
            return None

    def confirm(self, question: str) -> bool:
        """Asks on the terminal; Ctrl-C and Ctrl-D are no."""
        from prompt_toolkit import prompt

        try:
            answer = prompt(f"{question} [Y/n] ")
        except (EOFError, KeyboardInterrupt):
            return False
        return answer.strip().lower() in ("", "y", "yes")


def _continuation(width: int, _line: int, wrap_count: int) -> str:
    """What stands before a further line: dots, or space if the line above was only folded."""
    return " " * width if wrap_count else CONTINUATION


def _key_bindings() -> KeyBindings:
    from prompt_toolkit.key_binding import KeyBindings

    bindings = KeyBindings()

    @bindings.add("enter")
    def _(event: KeyPressEvent) -> None:
        if is_open_block(event.current_buffer.text):
            event.current_buffer.insert_text("\n")
        else:
            event.current_buffer.validate_and_handle()

    @bindings.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return bindings
