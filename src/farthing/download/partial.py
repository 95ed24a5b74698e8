"""A file that grows over several attempts, and only ever from bytes that are still right."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from farthing.download.integrity import CHUNK, hasher_for
from farthing.errors import DownloadError


class ChecksumMismatch(Exception):  # noqa: N818 - the caller decides whether it is an error
    """The whole file is not what it must be. ``resumed``: some of it came in an earlier attempt."""

    def __init__(self, found: str, expected: str, resumed: bool) -> None:
        super().__init__(f"checksum is {found}, expected {expected}; nothing kept")
        self.resumed = resumed


class PartialFile:
    """``<target>.partial`` and its state ``<target>.partial.json``. Use as a context manager.

    The state holds a mark: a length and the digest of that many bytes. Opening keeps exactly the
    bytes up to a mark whose digest still holds, and none otherwise; so a kill, a crash or a
    foreign hand between two attempts costs bytes, never correctness. Leaving the context marks
    what has come, or removes both files if that is nothing. One process at a time: hold the lock.
    """

    def __init__(self, target: Path, *, name: str, size: int, checksum: str) -> None:
        """Nothing is touched before the context is entered. ``size`` in bytes."""
        self.target = target
        self.path = target.with_name(target.name + ".partial")
        self.state_path = target.with_name(target.name + ".partial.json")
        self.size = size
        self.checksum = checksum
        self.offset = 0
        self._name = name
        self._resumed = False
        self._marked = 0
        self._hasher = hasher_for(checksum, size)

    def __enter__(self) -> Self:
        self.target.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("r+b" if self.path.exists() else "w+b")
        length, digest = self._read_mark()
        if not self._restart_at(length) or self._hasher.hexdigest() != digest:
            self._restart_at(0)
        self._resumed = self.offset > 0
        try:
            self.mark()  # from here on a killed process leaves what is listed and can be removed
        except DownloadError:
            self._file.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        if self._file.closed:
            return
        with contextlib.suppress(OSError, DownloadError):
            self.mark()
        with contextlib.suppress(OSError):  # buffered bytes that find no room are given up
            self._file.close()
        if self._marked == 0:
            self._remove()

    def write(self, data: bytes) -> None:
        """Append. Raises DownloadError if the disk refuses."""
        try:
            self._file.write(data)
        except OSError as error:
            raise self._disk_error(error) from error
        self._hasher.update(data)
        self.offset += len(data)

    def mark(self) -> None:
        """Note that what is here so far is worth keeping."""
        try:
            self._file.flush()
            digest = self._hasher.hexdigest()
            state = PartialState(self._name, self.size, self.checksum, self.offset, digest)
            write_atomically(self.state_path, json.dumps(asdict(state)))
        except OSError as error:
            raise self._disk_error(error) from error
        self._marked = self.offset

    def rewind(self, offset: int) -> None:
        """Give up the bytes from ``offset`` on."""
        if offset < self.offset:
            self._file.flush()
            self._restart_at(offset)
            self._resumed = self._resumed and offset > 0
            self.mark()

    def complete(self) -> Path:
        """Check the whole, put it in place and return its path.

        Raises ChecksumMismatch, with nothing kept, or DownloadError if the disk refuses.
        """
        found = f"{self.checksum.partition(':')[0]}:{self._hasher.hexdigest()}"
        if self.offset != self.size or found != self.checksum:
            resumed = self._resumed
            self.rewind(0)
            raise ChecksumMismatch(found, self.checksum, resumed)
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self.path.replace(self.target)
        except OSError as error:
            raise self._disk_error(error) from error
        self.state_path.unlink(missing_ok=True)
        return self.target

    def _restart_at(self, length: int) -> bool:
        """Truncate to ``length`` and hash that much; False if there is less."""
        self._hasher = hasher_for(self.checksum, self.size)
        self._file.seek(0)
        self.offset = 0
        while self.offset < length:
            chunk = self._file.read(min(CHUNK, length - self.offset))
            if not chunk:
                return False
            self._hasher.update(chunk)
            self.offset += len(chunk)
        self._file.seek(length)
        self._file.truncate()
        return True

    def _read_mark(self) -> tuple[int, str]:
        state = read_state(self.state_path)
        if state is None or (state.size, state.checksum) != (self.size, self.checksum):
            return 0, ""
        return state.length, state.digest

    def _disk_error(self, error: OSError) -> DownloadError:
        left = self.size - self._marked
        reason = error.strerror or str(error)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            reason = f"the disk is full; {left:,} bytes are still to come"
        return DownloadError(
            f"{self._name}: cannot write {self.path}: {reason}; "
            "what has come is kept and the next attempt resumes"
        )

    def _remove(self) -> None:
        self.path.unlink(missing_ok=True)
        self.state_path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class PartialState:
    """What ``<target>.partial.json`` says: the whole file's facts, and the mark (see above)."""

    name: str
    size: int
    checksum: str
    length: int
    digest: str


def read_state(path: Path) -> PartialState | None:
    """The state of an unfinished file, or None if there is none that can be read."""
    try:
        state = PartialState(**json.loads(path.read_text()))
        return state if 0 <= state.length <= state.size else None
    except (OSError, ValueError, TypeError):
        return None


def write_atomically(path: Path, text: str) -> None:
    """Replace the file's content; a reader or a crash sees the old or the new, whole."""
    temporary = path.with_name(path.name + ".new")
    try:
        temporary.write_text(text)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
