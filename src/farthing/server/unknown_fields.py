"""Fields of requests that nothing here knows."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from farthing.openai_protocol.errors import shown

MAX_NAMES = 100
"""Names that are told of, and remembered; a line says that the rest is not."""

logger = logging.getLogger(__name__)


class UnknownFields:
    """Tells of each name once."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def note(self, names: Iterable[str]) -> None:
        """Takes note that a request has fields of these names."""
        for name in names:
            if name not in self._names and len(self._names) < MAX_NAMES:
                self._names.add(name)
                logger.warning("a request has an unknown field, left out: %s", shown(name))
                if len(self._names) == MAX_NAMES:
                    logger.warning("those were %d; no more of them are told of", MAX_NAMES)
