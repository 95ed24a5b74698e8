"""Positional reads of a model file."""

from __future__ import annotations

import contextlib
import mmap
import os
import stat
import weakref
from pathlib import Path

import numpy as np
import numpy.typing as npt

from farthing.errors import FarthingError, ModelFormatError, ModelNotFoundError

_MAX_READ = 1 << 30  # one pread moves less than 2 GiB


class FileReader:
    """A regular file, open for reads at any offset from any thread, closed when last dropped.

    The file is read with ``pread``: mapped pages count in the resident size until the kernel takes
    them back, which would double the memory of a load. Only what is used where it lies is mapped.
    The file stays open, so one replaced by rename after opening is still read as it was.
    """

    def __init__(self, path: Path) -> None:
        """Opens ``path``.

        Raises :class:`ModelNotFoundError` if there is no such file, :class:`ModelFormatError` if
        it is not a regular file and :class:`FarthingError` if the system refuses to read it.
        """
        try:
            # Without O_NONBLOCK, opening a FIFO waits for a writer.
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            raise ModelNotFoundError(f"{path}: no such file") from None
        except OSError as error:
            raise FarthingError(f"{path}: cannot be read: {error.strerror}") from error
        self.path = path
        self.fd = fd
        weakref.finalize(self, os.close, fd)
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise ModelFormatError(path, "is not a regular file")
        self.size = status.st_size
        self._mapped: npt.NDArray[np.uint8] | None = None

    def read(self, offset: int, nbytes: int) -> bytes:
        """Exactly ``nbytes`` bytes from ``offset``; the caller has checked them against ``size``.

        Raises :class:`ModelFormatError` if the file has become shorter.
        """
        if nbytes <= _MAX_READ:
            try:
                whole = os.pread(self.fd, nbytes, offset)
            except OSError as error:
                raise FarthingError(f"{self.path}: cannot be read: {error.strerror}") from error
            if len(whole) == nbytes:
                return whole
        buffer = np.empty(nbytes, np.uint8)
        self.read_into(offset, buffer)
        return buffer.tobytes()

    def read_into(self, offset: int, buffer: npt.NDArray[np.uint8]) -> None:
        """Fills the contiguous ``buffer`` with the bytes from ``offset``; raises as ``read``."""
        view = buffer.data.cast("B") if buffer.size else memoryview(b"")
        done = 0
        while done < len(view):
            try:
                got = os.preadv(self.fd, [view[done : done + _MAX_READ]], offset + done)
            except OSError as error:
                raise FarthingError(f"{self.path}: cannot be read: {error.strerror}") from error
            if got == 0:
                raise ModelFormatError(
                    self.path,
                    f"ends here, {len(view) - done} bytes early; it changed after it was opened",
                    offset=offset + done,
                )
            done += got

    def mapped(self) -> npt.NDArray[np.uint8]:
        """The whole file in memory, read-only; every process that maps it shares the pages.

        Mapped once and kept until neither the reader nor a part of the array is referred to.
        Raises :class:`ModelFormatError` if the file has become shorter than when it was opened.
        One that is cut later ends the process with SIGBUS where what is missing is touched.
        """
        if self._mapped is None:
            size = os.fstat(self.fd).st_size
            if size < self.size:
                raise ModelFormatError(
                    self.path,
                    f"ends here, {self.size - size} bytes early; it changed after it was opened",
                    offset=size,
                )
            try:
                whole = mmap.mmap(self.fd, self.size, access=mmap.ACCESS_READ)
            except (OSError, ValueError) as error:
                reason = error.strerror if isinstance(error, OSError) else str(error)
                raise FarthingError(f"{self.path}: cannot be mapped: {reason}") from error
            # Hardware prefetches end with a page. Not every system has large ones for files.
            with contextlib.suppress(OSError):
                whole.madvise(mmap.MADV_HUGEPAGE)
            whole.madvise(mmap.MADV_WILLNEED)
            self._mapped = np.frombuffer(whole, np.uint8)
        return self._mapped
