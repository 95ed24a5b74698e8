"""Fetching the model for a server that tells of it meanwhile."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from farthing.cli.download import DownloadBar, fetch
from farthing.cli.model_names import model_names
from farthing.cli.terminal import dim

if TYPE_CHECKING:
    from farthing.server.model_fetch import FoundModel, Tell


_log = logging.getLogger("farthing.server")


class ModelFetch:
    """Finds the model ``asked`` for, or downloads it, with a bar on a terminal, lines in the log.

    ``further``: names that requests may call it by.
    """

    def __init__(self, asked: str, further: Sequence[str]) -> None:
        self._asked = asked
        self._further = further
        # The log waits for nobody to read it; the bar is for who looks.
        self._bar = DownloadBar(dim if sys.stderr.isatty() else _log.info)

    def __call__(self, tell: Tell) -> FoundModel:
        """The model; ``tell`` gets the bytes that are here and all. Raises as :func:`fetch`."""
        from farthing.server.model_fetch import FoundModel

        path = fetch(self._asked, _Told(self._bar, tell))
        return FoundModel(path, model_names(self._asked, path, self._further))

    def close(self) -> None:
        """Takes the bar away, also while the download goes on."""
        self._bar.finish()


class _Told:
    """A bar that is not the only one to be told."""

    def __init__(self, bar: DownloadBar, tell: Tell) -> None:
        self._bar = bar
        self._tell = tell
        self._total = 0

    def start(self, name: str, total: int, done: int) -> None:
        """A transfer begins."""
        self._total = total
        self._tell(done, total)
        self._bar.start(name, total, done)

    def advance(self, done: int, part: str) -> None:
        """Bytes have come."""
        self._tell(done, self._total)
        self._bar.advance(done, part)

    def note(self, message: str) -> None:
        """One line."""
        self._bar.note(message)

    def finish(self) -> None:
        """The transfer has ended."""
        self._bar.finish()
