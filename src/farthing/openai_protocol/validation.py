"""From a body to a checked request: pydantic's verdict in one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Discriminator, Field, ValidationError

from farthing.openai_protocol.errors import RequestError, shown

M = TypeVar("M", bound=BaseModel)

MAX_NAMED = 3
"""Problems told of one request, of however many there are."""


class Strict(BaseModel):
    """A part of a request: no value is turned into one of another type."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True, populate_by_name=True)


FAIL_FAST = Field(fail_fast=True)
"""Of a list: its first wrong element is enough."""


def _kind(value: Any) -> str:
    return "list" if isinstance(value, list) else "text"


BY_KIND = Discriminator(_kind)
"""Of a text (tag ``text``) or a list (tag ``list``): which of them is held against its type."""


def parse(model: type[M], body: Mapping[str, Any]) -> M:
    """``body`` as a ``model``. Raises :class:`RequestError` naming the fields that are wrong."""
    try:
        return model.model_validate(body)
    except ValidationError as error:
        found = error.errors(include_url=False)
        problems = _problems(body, found)
        more = f", and {len(problems) - MAX_NAMED} more" if len(problems) > MAX_NAMED else ""
        raise RequestError(
            "; ".join(problems[:MAX_NAMED]) + more, param=_where(body, found[0]) or None
        ) from None


_VERDICTS = {
    "dict_type": "should be an object",
    "model_type": "should be an object",
    "extra_forbidden": "is of no use here, and nothing of it would be kept to",
}


def _problems(body: Mapping[str, Any], errors: Sequence[Any]) -> list[str]:
    """A line for each place; what does not fit any of several types is told once."""
    verdicts: dict[str, list[str]] = {}
    for error in errors:
        where = _where(body, error) or "the request"
        if error["type"] == "missing":
            verdicts[where] = [f"{where} is missing"]
        elif error["type"] == "value_error":  # one of our own
            verdicts[where] = [f"{where} {error['ctx']['error']}"]
        elif where in verdicts:
            verdicts[where].append(_verdict(body, error).removeprefix("should be "))
        else:
            verdicts[where] = [f"{where}: {shown(error['input'])} {_verdict(body, error)}"]
    return [_either(told) for told in verdicts.values()]


def _either(words: Sequence[str]) -> str:
    return " or ".join((", ".join(words[:-1]), words[-1])) if len(words) > 1 else words[0]


def _verdict(body: Mapping[str, Any], error: Any) -> str:
    if error["type"] == "string_type" and error["loc"][-1] == "text" and not _ends(body, error):
        return "should be a valid string or list"  # the place is that of a tag
    verdict = _VERDICTS.get(error["type"], error["msg"].replace(" after validation", ""))
    for beginning in ("Input ", "List ", "String "):
        verdict = verdict.removeprefix(beginning)
    verdict = verdict.removesuffix(", not 0")
    return f"{verdict[:1].lower()}{verdict[1:]}"


def _where(body: Mapping[str, Any], error: Any) -> str:
    location = error["loc"]
    return place(body, location if _ends(body, error) else location[:-1])


def _ends(body: Any, error: Any) -> bool:
    """Whether an error's location ends in the body, or in what the body lacks."""
    if error["type"] == "missing" or not error["loc"]:
        return True
    *path, last = error["loc"]
    for step in path:
        if _has(body, step):
            body = body[step]
    return _has(body, last) and body[last] is error["input"]


def _has(body: Any, step: int | str) -> bool:
    if isinstance(body, list):
        return isinstance(step, int) and step < len(body)
    return isinstance(body, dict) and step in body


def place(body: object, location: Sequence[int | str]) -> str:
    """A place in ``body`` as users write it: ``messages[0].content``.

    pydantic's location has words of its own between keys and indexes; they are left out.
    """
    path = ""
    for step in location:
        if isinstance(body, list) and isinstance(step, int) and step < len(body):
            path += f"[{step}]"
            body = body[step]
        elif isinstance(body, dict) and isinstance(step, str):
            if step not in body and step != location[-1]:
                continue
            if step.isidentifier() and len(step) <= 40:
                path += f".{step}" if path else step
            else:
                path += f"[{shown(step)}]" if path else shown(step)
            body = body.get(step)
    return path
