"""A folder for models that are made to be measured, gone when the work is."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

_PREFIX = "farthing-evaluate-"
_YOUNG = 60  # seconds


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """An empty folder among the temporary ones (``TMPDIR``), removed with all that is in it.

    It is locked while it is in use, and the system lets go of the lock however the process ends:
    folders of processes that were killed are removed by the next one.
    """
    place = Path(tempfile.gettempdir())
    for left in place.glob(_PREFIX + "*"):
        _remove_if_left(left)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _remove_if_left(folder: Path) -> None:
    """Removes a folder that no process holds; another user's stays, and one not yet locked."""
    try:
        found = folder.lstat()
        if found.st_uid != os.getuid() or time.time() - found.st_mtime < _YOUNG:
            return
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    except OSError:
        pass
    finally:
        os.close(lock)
