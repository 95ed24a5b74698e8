"""Everything Farthing raises on purpose. ``str(error)`` is one clear line: thing, value, remedy."""

from __future__ import annotations

from pathlib import Path


class FarthingError(Exception):
    """Base of all errors a user can cause or must be told about. The CLI exits 2 on it."""


class InvalidParameterError(FarthingError, ValueError):
    """A parameter has a value it cannot have; the message names both and what would be right."""


class ModelNotFoundError(FarthingError):
    """No model of that name or path; the message suggests the nearest names."""


class DownloadError(FarthingError):
    """A model could not be fetched from any of its sources; each source's reason is named."""


class ModelFormatError(FarthingError):
    """A model file is not what its format demands."""

    def __init__(
        self, file: Path | str, problem: str, *, field: str | None = None, offset: int | None = None
    ) -> None:
        self.file = Path(file)
        self.field = field
        self.offset = offset
        where = f"{file}"
        if field is not None:
            where += f": {_one_line(field, 160)}"
        if offset is not None:
            where += f" (byte {offset})"
        super().__init__(f"{where}: {_one_line(problem, 600)}")


def _one_line(text: str, longest: int) -> str:
    """``text``, of which a hostile file may have written a part, short and printable."""
    if len(text) > longest:
        text = f"{text[: longest - 40]}… ({len(text)} characters)"
    if text.isprintable():
        return text
    return "".join([c if c.isprintable() else ascii(c)[1:-1] for c in text])


class UnsupportedArchitectureError(FarthingError):
    """The model's architecture has no program here; the message names it and the supported ones."""


class UnsupportedOperationError(FarthingError):
    """An executor has no implementation of an operation of the program."""


class ContextLengthError(FarthingError):
    """A prompt does not fit the model's context; the message has both token counts."""


class TooManyTokensError(ContextLengthError):
    """A text that is plainly too long, by its look: ``least`` tokens at least, of ``most``."""

    def __init__(self, least: int, most: int) -> None:
        super().__init__(f"text has at least {least} tokens, at most {most} are taken")
        self.least = least


class InsufficientMemoryError(FarthingError):
    """Loading would not fit; the message has the bytes needed and the bytes available."""


class DiskFullError(FarthingError):
    """A disk has no room for what is written to ``path``; ``problem`` says how it is told."""

    def __init__(self, path: Path | str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = Path(path)
        self.problem = problem


class ChatTemplateError(FarthingError):
    """A model's chat template is missing, refuses the messages, or exceeds its limits."""


class ChatTemplateLimitError(ChatTemplateError):
    """A chat template runs for too long or writes too much: the model's fault, not a message's."""
