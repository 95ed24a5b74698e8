"""Names that a person writes with commas between them."""

from __future__ import annotations

from collections.abc import Iterable

from farthing.errors import InvalidParameterError


def split_names(option: str, text: str, what: str, there_are: Iterable[str]) -> tuple[str, ...]:
    """The names in ``text``, in their order.

    Raises :class:`InvalidParameterError` where there is none; ``what`` is what one stands for, and
    ``there_are`` some that would do.
    """
    names = tuple(name for part in text.split(",") if (name := part.strip()))
    if not names:
        raise InvalidParameterError(
            f"{option} {text[:40]!r} names no {what}; there are {', '.join(there_are)}"
        )
    return names
