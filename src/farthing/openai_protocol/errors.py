"""What is wrong with a request, as the OpenAI API says it."""

from __future__ import annotations

import re
from typing import Any

from farthing.errors import (
    ChatTemplateError,
    ChatTemplateLimitError,
    ContextLengthError,
    FarthingError,
    InvalidParameterError,
)

MAX_ECHO = 64
"""Bytes of a request that an error repeats at a stretch."""

MAX_MESSAGE = 600  # characters

# What a message quotes, and what has no end: an apostrophe inside of a word opens nothing.
_QUOTED = re.compile(r"""(?<!\w)'(?:[^'\\]|\\.)*'(?!\w)|"(?:[^"\\]|\\.)*"|\S{65,}""")


class RequestError(FarthingError):
    """A request that is refused or has failed.

    ``status`` is the HTTP status; ``type``, ``param`` (the field of the request) and ``code`` are
    fields of the error object; ``retry_after``: seconds after which asking again makes sense.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        type: str = "invalid_request_error",  # noqa: A002 - its name in the API
        param: str | None = None,
        code: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(clear_line(message))
        self.status = status
        self.type = type
        self.param = param
        self.code = code
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (str(self), self.__dict__)

    def body(self) -> dict[str, Any]:
        """The body of the response: ``{"error": {"message", "type", "param", "code"}}``."""
        error = {
            "message": str(self),
            "type": self.type,
            "param": self.param,
            "code": self.code,
        }
        return {"error": error}


def _rebuilt(message: str, fields: dict[str, Any]) -> RequestError:
    error = RequestError(message)
    error.__dict__.update(fields)
    return error


def request_error(error: Exception) -> RequestError:
    """Any exception as the error its request is answered with.

    What a parameter, a template or a prompt is to blame for is the caller's (400), all else ours
    (500).
    """
    if isinstance(error, RequestError):
        return error
    if isinstance(error, ContextLengthError):
        return RequestError(str(error), code="context_length_exceeded")
    if isinstance(error, InvalidParameterError):
        return RequestError(str(error), param=_parameter(str(error)))
    if isinstance(error, ChatTemplateError) and not isinstance(error, ChatTemplateLimitError):
        of_ours = str(error).startswith("continue_final_message")
        return RequestError(str(error), param="continue_final_message" if of_ours else "messages")
    if isinstance(error, FarthingError):
        return generation_error(str(error))
    if isinstance(error, MemoryError):
        return generation_error("out of memory")
    return generation_error(f"internal error: {type(error).__name__}: {error}")


def generation_error(message: str) -> RequestError:
    """The error of a request that was right and failed all the same."""
    return RequestError(message, status=500, type="server_error")


def clear_line(message: str) -> str:
    """``message`` as one printable line that repeats little of what a stranger wrote."""
    line = " ".join(_QUOTED.sub(lambda match: _cut(match[0]), message).split())
    line = "".join([c if c.isprintable() else ascii(c)[1:-1] for c in line])
    return line if len(line) <= MAX_MESSAGE else line[: MAX_MESSAGE - 1] + "…"


def shown(value: object) -> str:
    """A value of a request for a message: at most ``MAX_ECHO`` bytes of it."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return _cut(repr(value[:MAX_ECHO]) if isinstance(value, str) else str(value))


def _cut(text: str) -> str:
    raw = text.encode("utf-8", "replace")
    if len(raw) <= MAX_ECHO:
        return text
    return raw[: MAX_ECHO - 4].decode("utf-8", "ignore") + "…"


def _parameter(message: str) -> str | None:
    """The parameter that a message of ours begins with."""
    found = re.match(r"[a-z][a-z_]*(?:\.[a-z_]+)*(?=[\s=:\[])", message)
    return found[0] if found else None
