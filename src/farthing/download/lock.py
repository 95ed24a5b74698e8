"""A lock file: one process at a time fetches, adopts or removes a model."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from farthing.errors import DownloadError

_POLL = 0.1  # seconds
_TRIES = 10  # to make a folder that others remove meanwhile


@contextlib.contextmanager
def file_lock(path: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold the lock at ``path``; ``on_wait`` is called once if another process holds it.

    ``on_wait`` may raise to give up. Raises DownloadError if the folder cannot be made. The system
    frees the lock of a process that died. The file is removed on release: a process that got the
    lock of a removed file sees so and starts over.
    """
    waited = False
    failures = 0
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except (FileExistsError, FileNotFoundError) as error:
            if path.parent.is_file():
                raise
            # Another process removed the folder between two calls, or it cannot be made at all.
            failures += 1
            if failures == _TRIES:
                problem = f"the folder {path.parent} cannot be made: {error.strerror}"
                raise DownloadError(problem) from error
            time.sleep(_POLL / 10)
            continue
        failures = 0
        if _try_lock(descriptor):
            if _same_file(descriptor, path):
                break
            os.close(descriptor)
            continue
        os.close(descriptor)
        if not waited:
            waited = True
            on_wait()
        time.sleep(_POLL)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # Windows does not remove an open file
            path.unlink()
        os.close(descriptor)
        with contextlib.suppress(OSError):  # other locks are there
            path.parent.rmdir()


def _same_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> bool:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
