"""The folder in which prefix caches outlive the process: a file for each model and KV type.

It holds what users have said. The folder is made for its owner alone, and so are the files.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import tempfile
import time
from collections.abc import Iterator
from os import PathLike
from pathlib import Path

from farthing.engine.model_loader import LoadedModel
from farthing.engine.prefix_cache import PrefixCache
from farthing.engine.prefix_file import read_prefix_file, write_prefix_file
from farthing.engine.prefix_key import prefix_key
from farthing.errors import FarthingError, InvalidParameterError, ModelNotFoundError
from farthing.files.disk import sync, why_full
from farthing.program.native import KvCache

_SUFFIX = ".prefixes"
_PARTIAL = ".partial"
_LOCK = ".lock"
_PATIENCE = 10.0  # seconds that another process may take to save its own
_log = logging.getLogger(__name__)


def check_prefix_folder(folder: str | PathLike[str] | None, *, caches: bool) -> None:
    """Whether a prefix cache could be saved to ``folder``; nothing is left there.

    Raises :class:`InvalidParameterError` for what names no folder or one that cannot be written or
    made, and if nothing is cached.
    """
    if folder is None:
        return
    name = os.fspath(folder)
    if not name or "\0" in name:
        raise InvalidParameterError(f"prefix_cache={name!r} must name a folder")
    if not caches:
        raise InvalidParameterError(
            f"prefix_cache={name!r}: there is no prefix cache without use_cache, "
            "enable_prefix_caching and kv='paged'"
        )
    try:
        with tempfile.TemporaryFile(dir=_nearest(Path(name))):  # permissions alone do not tell
            pass
    except OSError as error:
        reason = why_full(error) or error.strerror or str(error)
        raise InvalidParameterError(
            f"prefix_cache={name!r} cannot be written: {reason}; it must name a folder that takes "
            "files, or that can be made"
        ) from None


def _nearest(folder: Path) -> Path:
    """``folder``, or the one above it in which it, or one on the way to it, can be made."""
    while True:
        try:
            folder.lstat()
            return folder
        except FileNotFoundError:
            folder = folder.parent


class PrefixStore:
    """The place of one loaded model's prefix cache in a folder.

    What goes wrong is logged as a warning and costs time, never an answer: a cache that cannot be
    restored starts empty, one that cannot be saved leaves what was saved before.
    """

    def __init__(
        self,
        folder: Path,
        loaded: LoadedModel,
        prefix_cache: PrefixCache,
        max_bytes: int | None = None,
    ) -> None:
        self._key = prefix_key(loaded)
        self.path = folder / f"{self._key.hex()[:32]}{_SUFFIX}"
        self._kv = loaded.runner.kv
        self._vocab_size = loaded.config.vocab_size
        self._num_threads = loaded.runner.executor.num_threads
        self._prefix_cache = prefix_cache
        self._max_bytes = max_bytes
        self._restored: frozenset[bytes] = frozenset()  # digests

    @property
    def num_restored_blocks(self) -> int:
        """Blocks that :meth:`restore` found."""
        return len(self._restored)

    def restore(self) -> int:
        """Fills the empty prefix cache; returns the number of blocks it then has."""
        try:
            count = read_prefix_file(
                self.path,
                self._key,
                self._prefix_cache,
                self._kv,
                vocab_size=self._vocab_size,
                num_threads=self._num_threads,
            )
        except ModelNotFoundError:
            return 0
        except FarthingError as error:
            _log.warning("prefix cache starts empty: %s", error)
            return 0
        self._restored = self._digests()
        return count

    def save(self) -> int:
        """Saves the prefix cache if it has blocks that were not restored; returns blocks written.

        No step may run meanwhile.
        """
        try:
            if self._digests() <= self._restored and os.path.exists(self.path):  # noqa: PTH110
                return 0
            return save_prefix_cache(
                self.path, self._key, self._prefix_cache, self._kv, self._max_bytes
            )
        except FarthingError as error:
            _log.warning("prefix cache is not saved: %s", error)
            return 0

    def _digests(self) -> frozenset[bytes]:
        return frozenset(entry.digest for entry in self._prefix_cache.entries())


def open_prefix_store(
    folder: str | PathLike[str] | None,
    loaded: LoadedModel,
    prefix_cache: PrefixCache | None,
    max_bytes: int | None,
) -> PrefixStore | None:
    """The store of a model that is just loaded, its prefix cache restored; None without folder."""
    if folder is None or prefix_cache is None:
        return None
    store = PrefixStore(Path(folder), loaded, prefix_cache, max_bytes)
    store.restore()
    return store


def save_prefix_cache(
    path: Path,
    key: bytes,
    prefix_cache: PrefixCache,
    kv: KvCache,
    max_bytes: int | None = None,
) -> int:
    """Puts a whole file in the place of ``path``, or leaves it as it is; returns blocks written.

    Processes that share the folder take turns; who comes last stays. What killed ones have left is
    removed. Raises :class:`FarthingError` naming the file and what the system said.
    """
    try:
        prefix_cache.check_integrity()
    except AssertionError as error:  # an interrupt may come between any two lines
        raise FarthingError(f"{path}: cannot be saved: the cache is broken: {error}") from error
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(path.parent):
            for stale in path.parent.glob(f"*{_SUFFIX}{_PARTIAL}"):
                stale.unlink()
            return _replace(path, key, prefix_cache, kv, max_bytes)
    except OSError as error:
        reason = why_full(error) or error.strerror or str(error)
        raise FarthingError(f"{path}: cannot be saved: {reason}") from error


def _replace(
    path: Path, key: bytes, prefix_cache: PrefixCache, kv: KvCache, max_bytes: int | None
) -> int:
    partial = path.with_name(path.name + _PARTIAL)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        with open(os.open(partial, flags, 0o600), "wb") as file:  # noqa: PTH123 - private from birth
            count = write_prefix_file(file, key, prefix_cache, kv, max_bytes)
        if count:
            partial.replace(path)
            sync(path.parent)
        return count
    finally:
        partial.unlink(missing_ok=True)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Holds the folder for this process; the system frees it when the process ends."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    fd = os.open(folder / _LOCK, flags, 0o600)
    try:
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise FarthingError(
                        f"{folder}: another process has been saving for {_PATIENCE:.0f} seconds"
                    ) from None
                time.sleep(0.02)
        yield
    finally:
        os.close(fd)
