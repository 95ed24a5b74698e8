"""What a conversation consists of; nothing here reads, writes or computes tokens."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farthing.cli.generation import Answer, Sampling, require_utf8
from farthing.cli.template_arguments import TemplateVariables
from farthing.errors import FarthingError, InvalidParameterError

if TYPE_CHECKING:
    from farthing.engine.metrics import RequestMetrics

Message = dict[str, str]
_ROLES = ("user", "assistant")


class ConversationFileError(FarthingError):
    """A saved conversation cannot be read or written; the message names the file and why."""


@dataclass(slots=True)
class Totals:
    """Sums over the answers of a session; seconds of the clock, counts in tokens."""

    answers: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0  # of them
    completion_tokens: int = 0
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0

    def add(self, metrics: RequestMetrics) -> None:
        """Counts one answer."""
        self.answers += 1
        self.prompt_tokens += metrics.prompt_tokens
        self.cached_tokens += metrics.cached_tokens
        self.completion_tokens += metrics.completion_tokens
        self.prefill_seconds += metrics.prefill_seconds
        self.decode_seconds += metrics.decode_seconds


@dataclass(slots=True)
class Session:
    """The messages so far (user and assistant in turn) and how the next answer is made."""

    model: str
    system: str | None = None
    sampling: Sampling = field(default_factory=Sampling)
    variables: TemplateVariables = field(default_factory=TemplateVariables)
    messages: list[Message] = field(default_factory=list)
    totals: Totals = field(default_factory=Totals)

    def for_model(self) -> list[Message]:
        """All messages, the system's first."""
        first = [{"role": "system", "content": self.system}] if self.system else []
        return [*first, *self.messages]

    def ask(self, text: str) -> None:
        """Adds a user's message."""
        self.messages.append({"role": "user", "content": text})

    def record(self, answer: Answer) -> None:
        """Adds an answer, or takes the question back if nothing was answered."""
        if answer.metrics is not None:
            self.totals.add(answer.metrics)
        if answer.text:
            self.messages.append({"role": "assistant", "content": answer.text})
        else:
            self.withdraw()

    def withdraw(self) -> None:
        """Takes the last question back, with what was answered to it."""
        while self.messages:
            if self.messages.pop()["role"] == "user":
                return

    def droppable(self, count_tokens: Callable[[list[Message]], int], room: int) -> int:
        """How many of the oldest messages must go until ``room`` tokens hold the rest.

        Whole turns go; the system message and the last question never. 0 if that is no help.
        """
        starts = [i for i, message in enumerate(self.messages) if message["role"] == "user"]
        for start in starts[1:]:
            rest = Session(self.model, self.system, messages=self.messages[start:])
            if count_tokens(rest.for_model()) <= room:
                return start
        return 0

    def save(self, path: Path) -> None:
        """Writes the conversation as JSON, all of it or nothing.

        Raises:
            ConversationFileError: the file cannot be written.
        """
        content = {"model": self.model, "system": self.system, "messages": self.messages}
        text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        temporary = None
        try:
            with tempfile.NamedTemporaryFile(
                "w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", delete=False
            ) as file:
                temporary = Path(file.name)
                file.write(text)
            temporary.replace(path)
        except BaseException as error:
            if temporary is not None:
                temporary.unlink(missing_ok=True)
            if isinstance(error, OSError):
                raise ConversationFileError(f"{path}: {error.strerror}") from error
            if isinstance(error, UnicodeEncodeError):
                raise ConversationFileError(f"{path}: a message is not UTF-8 text") from error
            raise

    def load(self, path: Path) -> None:
        """Takes system message and messages of a saved conversation in place of the present ones.

        Raises:
            ConversationFileError: the file cannot be read or is no conversation; nothing changes.
        """
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ConversationFileError(f"{path}: {error.strerror}") from error
        except (ValueError, RecursionError) as error:
            raise ConversationFileError(f"{path}: not JSON: {error}") from error
        self.system, self.messages = _parse(path, content)


def _parse(path: Path, content: Any) -> tuple[str | None, list[Message]]:
    if not isinstance(content, dict) or not isinstance(content.get("messages"), list):
        raise ConversationFileError(f"{path}: no saved conversation: it has no list 'messages'")
    system = content.get("system")
    if not isinstance(system, str | None):
        raise ConversationFileError(f"{path}: 'system' is not text")
    _require_text(path, "'system'", system or "")
    messages: list[Message] = []
    for index, message in enumerate(content["messages"]):
        expected = _ROLES[index % 2]
        fits = isinstance(message, dict) and message.get("role") == expected
        if not fits or not isinstance(message.get("content"), str):
            raise ConversationFileError(
                f"{path}: message {index + 1} is not one of role '{expected}' with text 'content'"
            )
        _require_text(path, f"message {index + 1}", message["content"])
        messages.append({"role": expected, "content": message["content"]})
    if len(messages) % 2:
        raise ConversationFileError(f"{path}: the last question has no answer")
    return system, messages


def _require_text(path: Path, what: str, text: str) -> None:
    """JSON can spell half a character, which neither a tokenizer nor a file takes."""
    try:
        require_utf8(what, text)
    except InvalidParameterError as error:
        raise ConversationFileError(f"{path}: {error}") from None
