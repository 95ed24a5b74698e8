"""Options that were given and have nothing to act on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from farthing.errors import InvalidParameterError

if TYPE_CHECKING:
    from collections.abc import Iterable


def require_unset(option: str, value: object, why: str) -> None:
    """Raises :class:`InvalidParameterError` for an option that would be silently ignored.

    ``why`` says what it is of, and what would give it something to act on.
    """
    if value is not None:
        shown = str(value) if len(str(value)) <= 40 else f"{str(value)[:39]}…"
        raise InvalidParameterError(f"{option} {shown}: {why}")


def chooses_scales(schemes: Iterable[str]) -> bool:
    """Whether packing in any of ``schemes``, which can be packed in, rounds weights to codes."""
    from farthing.packing.plan import find_target

    targets = (find_target(name) for name in schemes)
    return any(target is not None and target.scale_levels for target in targets)
