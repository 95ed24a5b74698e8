"""On whose behalf a request comes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks, and what is granted; None: the server's own limits only."""

    name: str  # of the key, never the key
    priority: int = 0  # requests may ask for a later turn than this, not for a sooner one
    requests_per_minute: int | None = None
    max_concurrent_requests: int | None = None


ANYBODY = Principal("")
"""Where no keys are asked for."""
