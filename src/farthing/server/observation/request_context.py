"""Which request the code that runs is part of."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

_state: ContextVar[Mapping[str, Any] | None] = ContextVar("farthing_request_state", default=None)


def enter_request(state: Mapping[str, Any]) -> None:
    """From here on in this task, what runs is part of the request with this ASGI state."""
    _state.set(state)


def current_request_id() -> str | None:
    """The id of the request that is being served, as far as it has one yet."""
    state = _state.get()
    found = None if state is None else state.get("request_id")
    return found if isinstance(found, str) else None
