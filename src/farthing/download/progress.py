"""How a download tells what it does, so that a command line can draw it."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Receives the steps of one download, in order, from the thread that runs it.

    ``start`` comes before and ``finish`` after any ``advance`` of one transfer, also when it
    fails; another source means another ``start``. ``note`` may come at any time.
    """

    def start(self, name: str, total: int, done: int) -> None:
        """A transfer of ``total`` bytes begins, or resumes with ``done`` bytes already here."""

    def advance(self, done: int, part: str) -> None:
        """``done`` bytes of the total have come; ``part`` says which piece is on its way."""

    def note(self, message: str) -> None:
        """One line worth telling: a source that failed, another process that is waited for."""

    def finish(self) -> None:
        """The transfer ended, whole or not."""


class Silent:
    """A progress that tells nobody."""

    def start(self, name: str, total: int, done: int) -> None:
        """Ignore."""

    def advance(self, done: int, part: str) -> None:
        """Ignore."""

    def note(self, message: str) -> None:
        """Ignore."""

    def finish(self) -> None:
        """Ignore."""
