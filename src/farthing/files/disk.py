"""Why a disk takes no more."""

from __future__ import annotations

import errno

_FULL = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "files as large as its may not be written there",
}


def why_full(error: OSError) -> str | None:
    """What to tell of an error that says that there is no room; None for other errors."""
    return _FULL.get(error.errno or 0)
