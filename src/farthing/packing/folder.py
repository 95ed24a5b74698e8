"""The folder a packed model grows in, and its taking the place of the target when it is whole.

``NAME.partial`` stands beside the target and has ``settings.json`` (what is being made, of what),
``journal`` (a line for each tensor written: its codebook, if it has one of its own, and its
checksum) and ``model/``, which becomes the target by a rename. A run that was killed leaves it; the
next one for the same settings believes what the journal says and the bytes confirm, and goes on
behind that.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from farthing.errors import (
    DiskFullError,
    FarthingError,
    InvalidParameterError,
    ModelFormatError,
    ModelNotFoundError,
)
from farthing.files.disk import sync, why_full
from farthing.files.reader import FileReader
from farthing.models.checkpoint.packed_manifest import MANIFEST
from farthing.packing.checksums import checksum, checksum_of_part
from farthing.packing.shards import Shard

_SPARE = 16 << 20  # bytes of the disk left alone


class PartialFolder:
    """The folder, locked for this process. Made by :func:`partial_folder`."""

    def __init__(
        self, target: Path, folder: Path, shards: Sequence[Shard], *, force: bool = False
    ) -> None:
        self.path = folder
        self.done = 0  # tensors written, in the order of the shards
        self._target = target
        self._force = force
        self._model = folder / "model"
        self._journal = folder / "journal"
        self._lines: list[str] = []  # of the journal, for the tensors written
        self._shards = shards
        self._places = [
            (shard, piece, offset)
            for shard in shards
            for piece, offset in zip(shard.pieces, shard.offsets, strict=True)
        ]

    @property
    def total(self) -> int:
        """Tensors of the model."""
        return len(self._places)

    @property
    def done_bytes(self) -> int:
        """Bytes of the tensors written."""
        return sum(piece.nbytes for _, piece, _ in self._places[: self.done])

    def resume(self) -> None:
        """Counts the tensors that an earlier run has left whole, and writes headers anew."""
        self._model.mkdir(exist_ok=True)
        lines = self._noted()
        for line, (shard, piece, offset) in zip(lines, self._places, strict=False):
            path = self._model / shard.file_name
            if not _holds(path, offset, piece.nbytes, _checksum_in(line)):
                break
            self.done += 1
        self._lines = lines[: self.done]
        self._journal.write_text("".join(f"{line}\n" for line in self._lines))
        for shard in self._shards:
            _write_at(self._model / shard.file_name, 0, shard.header)

    def check_space(self) -> None:
        """Raises :class:`DiskFullError` where the disk has no room for what is to come."""
        needed = sum(shard.nbytes for shard in self._shards) - self.done_bytes + _SPARE
        free = shutil.disk_usage(self.path).free
        if free < needed:
            if not self.done:
                shutil.rmtree(self.path)
            raise DiskFullError(
                self._target, f"needs {_mib(needed)} more on its disk, which has {_mib(free)}"
            )

    def append(self, data: memoryview, codebook: Sequence[int] | None = None) -> None:
        """Writes the next tensor; ``codebook`` is remembered with it."""
        shard, piece, offset = self._places[self.done]
        assert len(data) == piece.nbytes, piece.name
        _write_at(self._model / shard.file_name, offset, data)
        levels = "" if codebook is None else ",".join(map(str, codebook)) + " "
        self._lines.append(levels + checksum(data))
        with self._journal.open("a") as journal:
            journal.write(f"{self._lines[-1]}\n")
        self.done += 1

    def add(self, name: str, text: str | bytes) -> None:
        """Writes a small file of the model."""
        data = text.encode() if isinstance(text, str) else text
        (self._model / name).write_bytes(data)

    def finish(self) -> None:
        """Puts the model, now whole, in the target's place; with force, one that is there goes.

        Raises :class:`OSError` or :class:`InvalidParameterError` if something else has got there
        meanwhile.
        """
        expected = {shard.file_name: shard.nbytes for shard in self._shards}
        for name, size in expected.items():
            os.truncate(self._model / name, size)
        for path in [*self._model.iterdir(), self._model]:
            sync(path, forget=path.name in expected)
        replaced = self.path / "replaced"
        if self._force and os.path.lexists(self._target):
            check_target(self._target, [], force=True)
            shutil.rmtree(replaced, ignore_errors=True)  # of a run that ended here
            self._target.rename(replaced)
        try:
            self._model.rename(self._target)
        except OSError:
            if replaced.exists() and not os.path.lexists(self._target):
                replaced.rename(self._target)  # nobody is without a model for a disk that is full
            raise
        sync(self._target.parent)
        shutil.rmtree(self.path)

    @property
    def checksums(self) -> dict[str, str]:
        """Those of the tensors written, by name."""
        return {name: _checksum_in(line) for name, line in self._written()}

    @property
    def codebooks(self) -> dict[str, tuple[int, ...]]:
        """Those that tensors written have of their own, by name."""
        return {
            name: tuple(map(int, line.partition(" ")[0].split(",")))
            for name, line in self._written()
            if " " in line
        }

    def _written(self) -> Iterator[tuple[str, str]]:
        """Names and lines of the journal."""
        for (_, piece, _), line in zip(self._places, self._lines, strict=False):
            yield piece.name, line

    def _noted(self) -> list[str]:
        try:
            return self._journal.read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return []


@contextlib.contextmanager
def partial_folder(
    target: Path, settings: Mapping[str, object], shards: Sequence[Shard], *, force: bool = False
) -> Iterator[PartialFolder]:
    """The folder for ``target``, with what an earlier run of the same ``settings`` left in it.

    It stays behind when the body is interrupted or fails, but for a full disk and for a model that
    cannot be packed: then it goes. Raises :class:`FarthingError` if another process is at it, if
    something else stands in its place, :class:`DiskFullError` if the disk is full.
    """
    folder = partial_of(target)
    wanted = (json.dumps(settings, indent=1, sort_keys=True) + "\n").encode()
    with _full_disk(target, folder), _locked(folder):
        if (folder / "replaced").exists() and not target.exists():
            (folder / "replaced").rename(target)  # a run ended between the two renames
            check_target(target, [], force=force)
        known = folder / "settings.json"
        if not known.is_file() or known.read_bytes() != wanted:
            _clear(folder)
            known.write_bytes(wanted)
        partial = PartialFolder(target, folder, shards, force=force)
        partial.resume()
        try:
            partial.check_space()
            yield partial
        except ModelFormatError:  # the next run would meet it again
            shutil.rmtree(folder)
            raise


def partial_of(target: Path) -> Path:
    """Where a model grows that will be ``target``."""
    return target.parent / f"{target.name}.partial"


def check_target(target: Path, sources: Sequence[Path], *, force: bool) -> None:
    """Raises :class:`InvalidParameterError` unless a packed model may be put at ``target``.

    Nothing is written over the source, or over what stands there; with ``force`` a packed
    directory or an empty one may be replaced. Raises :class:`FarthingError` if something stands
    where the model is to grow.
    """
    for place in (target, partial_of(target)):
        whole = place.resolve()
        for real in (source.resolve() for source in sources):
            if whole == real or whole in real.parents:
                raise InvalidParameterError(
                    f"{place}: holds the model that is to be quantized; choose another --out"
                )
    if not target.parent.is_dir():
        raise InvalidParameterError(f"{target.parent}: no such folder to write {target.name} to")
    _require_place_to_grow(target)
    if not os.path.lexists(target):
        return
    if target.is_symlink() or not target.is_dir():
        raise InvalidParameterError(f"{target}: exists and is not a folder; choose another --out")
    if any(target.iterdir()) and not (target / MANIFEST).is_file():
        raise InvalidParameterError(
            f"{target}: exists and is no packed model, so it is left alone; choose another --out"
        )
    if not force:
        raise InvalidParameterError(
            f"{target}: exists already; --force replaces it, --out names another place"
        )
    if not os.access(target, os.W_OK):  # a folder that is moved must be writable itself
        raise InvalidParameterError(
            f"{target}: may not be written to, so it cannot be replaced; choose another --out"
        )


def _require_place_to_grow(target: Path) -> None:
    folder = partial_of(target)
    most, takes = os.pathconf(target.parent, "PC_NAME_MAX"), len(os.fsencode(folder.name))
    if takes > most:
        raise InvalidParameterError(
            f"{target}: its name is {takes - most} bytes too long; choose a shorter --out"
        )
    if os.path.lexists(folder):
        _require_ours(folder)
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise InvalidParameterError(f"{target.parent}: may not be written to; choose another --out")


def _require_ours(folder: Path) -> None:
    if not folder.is_dir():
        raise FarthingError(f"{folder}: is in the way, and not a folder; move it elsewhere")
    if any(folder.iterdir()) and not _is_ours(folder / "settings.json"):
        raise FarthingError(f"{folder}: is in the way, and no unfinished model; move it elsewhere")


def _clear(folder: Path) -> None:
    """Empties the folder of a run with other settings; refuses one that is not ours."""
    _require_ours(folder)
    for entry in list(folder.iterdir()):
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def _is_ours(settings: Path) -> bool:
    """Whether the file says what a model is made of, or a power cut has left nothing in it."""
    try:
        data = settings.read_bytes().strip(b"\0")
        return not data or {"files", "layout_version", "tool"} <= set(json.loads(data))
    except (FileNotFoundError, IsADirectoryError, ValueError, TypeError):
        return False


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Makes the folder and holds it for this process; the system frees it when the process ends."""
    while True:
        try:
            folder.mkdir(exist_ok=True)
        except FileExistsError:
            raise FarthingError(
                f"{folder}: is in the way, and not a folder; move it elsewhere"
            ) from None
        try:
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # a process that finished has removed it
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(fd), folder.stat()):
                break
        except BlockingIOError:
            os.close(fd)
            raise FarthingError(f"{folder}: another process is writing this model") from None
        except FileNotFoundError:
            pass
        os.close(fd)
    try:
        yield
    finally:
        os.close(fd)


@contextlib.contextmanager
def _full_disk(target: Path, folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = why_full(error)
        if reason is None:
            raise
        shutil.rmtree(folder, ignore_errors=True)
        raise DiskFullError(target, f"{reason}; nothing was kept") from error


def _write_at(path: Path, offset: int, data: bytes | memoryview) -> None:
    """Writes all of ``data`` at a place of the file, which is made if it is not there."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        view = memoryview(data)
        while view:
            count = os.pwrite(fd, view[: 1 << 30], offset)
            offset += count
            view = view[count:]
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(fd)


def _checksum_in(line: str) -> str:
    return line.rpartition(" ")[2]


def _holds(path: Path, offset: int, nbytes: int, expected: str) -> bool:
    """Whether a part of a file is there and has this checksum."""
    try:
        return checksum_of_part(FileReader(path), offset, nbytes) == expected
    except (ModelNotFoundError, ModelFormatError):
        return False


def _mib(nbytes: int) -> str:
    return f"{nbytes / 2**20:,.0f} MiB"
