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
        problems = [_problem(body, each) for each in found[:MAX_NAMED]]
        more = f", and {len(found) - MAX_NAMED} more" if len(found) > MAX_NAMED else ""
        raise RequestError(
            "; ".join(problems) + more, param=place(body, found[0]["loc"]) or None
        ) from None


_VERDICTS = {
    "dict_type": "should be an object",
    "model_type": "should be an object",
    "extra_forbidden": "is of no use here, and nothing of it would be kept to",
}


def _problem(body: Mapping[str, Any], error: Any) -> str:
    where = place(body, error["loc"]) or "the request"
    if error["type"] == "missing":
        return f"{where} is missing"
    if error["type"] == "value_error":  # one of our own
        return f"{where} {error['ctx']['error']}"
    verdict = _VERDICTS.get(error["type"], error["msg"].replace(" after validation", ""))
    for beginning in ("Input ", "List ", "String "):
        verdict = verdict.removeprefix(beginning)
    return f"{where}: {shown(error['input'])} {verdict[:1].lower()}{verdict[1:]}"


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
            name = step if step.isidentifier() and len(step) <= 40 else shown(step)
            path += f".{name}" if path else name
            body = body.get(step)
    return path
