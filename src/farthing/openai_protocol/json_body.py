"""The JSON of a request, read strictly and within bounds: :mod:`farthing.files.json_cursor`."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from farthing.files.json_cursor import JsonCursor
from farthing.openai_protocol.errors import RequestError

MAX_BODY = 8 << 20
"""Bytes of a request."""


class _BodyCursor(JsonCursor):
    def fail(self, problem: str, at: int | None = None) -> NoReturn:
        if at is None:
            at = self._skip_space()
        raise RequestError(f"the request {problem}, at byte {at}", code="invalid_json")


def read_object(raw: bytes) -> dict[str, object]:
    """The object that is all of ``raw``.

    Raises :class:`RequestError` for anything else: no JSON (``NaN`` and lone surrogates included),
    not UTF-8, a key twice in one object, a nest deeper than 64, more than ``MAX_BODY`` bytes.
    """
    if len(raw) > MAX_BODY:
        raise too_large()
    if not raw.strip(b" \t\n\r"):
        raise RequestError("the request is empty, a JSON object is needed", code="invalid_json")
    return _BodyCursor(Path(), raw).only_object()


def too_large() -> RequestError:
    """The error of a request over ``MAX_BODY``."""
    return RequestError(
        f"the request is longer than {MAX_BODY} bytes", status=413, code="request_too_large"
    )
