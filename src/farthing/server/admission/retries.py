"""How often a client has come before with the same request."""

from __future__ import annotations

RETRY_COUNT = "x-stainless-retry-count"
"""The header in which OpenAI's clients, and those that are made as they are, say it."""


def retries_of(value: str | None) -> int | None:
    """The number that the header's ``value`` is; None where it is missing or no number."""
    if value is None or len(value) > 4 or not (value.isascii() and value.isdigit()):
        return None
    return int(value)
