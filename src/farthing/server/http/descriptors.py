"""File descriptors: how many this process may have, and so how many connections."""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path

from farthing.errors import FarthingError

MOST_CONNECTIONS = 16_384
RESERVED = 24
"""Descriptors for all else that the server may open: logs, the engine's pipes, a trace."""


def raise_descriptor_limit() -> int:
    """Raises the soft limit of open files to the hard one; the limit that holds then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        # A system may have a lower limit of its own than the one it tells (macOS).
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_CONNECTIONS * 2 if soft == resource.RLIM_INFINITY else soft


def most_connections() -> int:
    """How many connections the limit of open files allows beside what is open and reserved.

    Raises the soft limit first; raises :class:`FarthingError` if there is no room for any.
    """
    limit = raise_descriptor_limit()
    free = limit - _open_descriptors() - RESERVED
    connections = min(free * 15 // 16, MOST_CONNECTIONS)  # a 16th: connections that are refused
    if connections < 1:
        raise FarthingError(
            f"the limit of {limit} open files leaves none for connections; raise it (ulimit -n)"
        )
    return connections


def _open_descriptors() -> int:
    for folder in ("/proc/self/fd", "/dev/fd"):
        if Path(folder).is_dir():
            return len(os.listdir(folder))  # noqa: PTH208 - names alone
    return 0
