"""``farthing serve`` as a process of its own, for clients in other environments."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from support import server_process

NAME = "tiny-model"
"""The name of the model in the API."""


@contextlib.contextmanager
def serving(model: Path, *options: str) -> Iterator[str]:
    """The server's address when it is ready. Ends it, and asserts that it ends as it should."""
    with server_process.serving(model, *options) as server:
        yield server.url
