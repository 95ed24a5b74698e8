"""What a disk is told, and why it takes no more."""

from __future__ import annotations

import errno
import os
from pathlib import Path

_FULL = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file may not become larger",
}


def why_full(error: OSError) -> str | None:
    """What to tell of an error that says that there is no room; None for other errors."""
    return _FULL.get(error.errno or 0)


def sync(path: Path, *, forget: bool = False) -> None:
    """Has the system write a file or folder to disk, and ``forget`` its pages.

    Those of what was written piece by piece are small; a file that is mapped is read into large
    ones where the file system can.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
        if forget:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)
