"""Refusing what would not fit, before it is allocated."""

from __future__ import annotations

from collections.abc import Mapping

from farthing import machine
from farthing.errors import InsufficientMemoryError


def require_memory(what: str, parts: Mapping[str, int]) -> None:
    """Raises :class:`InsufficientMemoryError` if ``parts``, bytes by name, are not available."""
    available, needed = machine.memory_available(), sum(parts.values())
    if needed > available:
        listed = ", ".join(f"{_mib(size)} of {part}" for part, size in parts.items())
        raise InsufficientMemoryError(
            f"{what} needs {_mib(needed)} ({listed}), {_mib(available)} are available"
        )


def _mib(nbytes: int) -> str:
    return f"{nbytes / 2**20:,.0f} MiB"
