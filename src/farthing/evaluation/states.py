"""Hidden states of a whole text, kept in a file that is gone when its owner is."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from farthing.errors import FarthingError

SPARE_BYTES = 256 << 20
"""Left free on the disk for others."""


class StateFile:
    """Rows of ``width`` float32 in a temporary file without a name; close it after use.

    Such a file is freed by the system however the process ends. It lies in the folder for
    temporary files (``TMPDIR``).

    Raises :class:`FarthingError` when ``rows`` of them do not fit there, and ``OSError`` naming the
    folder when they cannot be written after all.
    """

    def __init__(self, rows: int, width: int) -> None:
        self.nbytes = 4 * rows * width
        self.folder = Path(tempfile.gettempdir())
        free = shutil.disk_usage(self.folder).free
        if self.nbytes + SPARE_BYTES > free:
            raise FarthingError(
                f"{self.folder}: the reference's hidden states take {self.nbytes / 2**20:,.1f} "
                f"MiB, {SPARE_BYTES >> 20} MiB are left to others, and {free >> 20:,} MiB are "
                "free there; set TMPDIR to another folder, or fewer --tokens"
            )
        self._width = width
        self._file = tempfile.TemporaryFile(dir=self.folder)  # noqa: SIM115 - closed on exit

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):  # of rows that nobody will read
            self._file.close()

    def append(self, states: NDArray[np.float32]) -> None:
        """Writes (n, width) behind what is there."""
        with self._named():
            self._file.write(np.ascontiguousarray(states).data)

    def rewind(self) -> None:
        """Goes back to the first row, to read."""
        with self._named():
            self._file.seek(0)

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.folder)) from error

    def read(self, rows: int) -> NDArray[np.float32]:
        """The next ``rows`` rows."""
        data = self._file.read(4 * rows * self._width)
        return np.frombuffer(data, np.float32).reshape(rows, self._width)
