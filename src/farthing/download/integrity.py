"""Checksums of files, and room on the disk."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from farthing.errors import DownloadError

CHUNK = 1 << 20
_MARGIN = 16 << 20  # left free, so that a filled disk does not break other programs


class Hasher(Protocol):
    """The part of :mod:`hashlib` objects used here."""

    def update(self, data: bytes | memoryview, /) -> None:
        """Take in more bytes."""

    def hexdigest(self) -> str:
        """The digest of everything so far."""


def hasher_for(checksum: str, size: int) -> Hasher:
    r"""A hasher whose digest of ``size`` bytes is to equal ``checksum``'s (see ``ModelFile``).

    ``git-sha1`` is git's object id of a blob: SHA-1 of ``blob <size>\0`` and the content.
    """
    kind = checksum.partition(":")[0]
    if kind == "sha256":
        return hashlib.sha256()
    if kind == "git-sha1":
        hasher = hashlib.sha1(usedforsecurity=False)
        hasher.update(b"blob %d\0" % size)
        return hasher
    raise ValueError(f"unknown checksum {checksum!r}")


def file_matches(
    path: Path, size: int, checksum: str, tick: Callable[[int], None] | None = None
) -> bool:
    """Whether the file has this size and checksum; ``tick`` gets the bytes read so far."""
    try:
        if path.stat().st_size != size:
            return False
        return file_digest(path, checksum, size, tick) == checksum
    except OSError:
        return False


def file_digest(
    path: Path, checksum: str, size: int, tick: Callable[[int], None] | None = None
) -> str:
    """The file's digest, in the form of ``checksum``."""
    hasher = hasher_for(checksum, size)
    done = 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            hasher.update(chunk)
            done += len(chunk)
            if tick is not None:
                tick(done)
    return f"{checksum.partition(':')[0]}:{hasher.hexdigest()}"


def require_space(folder: Path, needed: int, name: str) -> None:
    """Raise DownloadError unless ``folder``'s disk has ``needed`` bytes and a small margin."""
    probe = folder
    while not probe.exists() and probe != probe.parent:
        probe = probe.parent
    free = shutil.disk_usage(probe).free
    if needed + _MARGIN > free:
        raise DownloadError(
            f"{name} needs {megabytes(needed + _MARGIN)} of free disk at {folder}, "
            f"available are {megabytes(free)}; free some, or set FARTHING_HOME to another disk"
        )


def megabytes(count: int) -> str:
    """``count`` bytes in decimal megabytes, as download sizes are usually given."""
    return f"{count / 1e6:,.1f} MB" if count < 10_000_000 else f"{count / 1e6:,.0f} MB"
