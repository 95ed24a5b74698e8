"""The folder of fetched models: what is there, whether it is still whole, and its removal.

``<home>/models/<folder>/`` holds one model: its file (or ``snapshot/`` with the files of a
repository) and ``manifest.json``, which says what was verified. A manifest may also point at a
file elsewhere that was verified and is used in place. A folder is derived from a model's name and
found again by scanning, so no name ever becomes a path unchecked.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from farthing.download.integrity import file_matches
from farthing.download.lock import file_lock
from farthing.download.partial import read_state, write_atomically
from farthing.download.progress import Progress
from farthing.errors import DownloadError

MANIFEST = "manifest.json"
SNAPSHOT = "snapshot"
WORK = ".pip"
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class VerifiedFile:
    """A file as it was when its checksum was last computed. ``name`` is relative to the root."""

    name: str
    bytes: int
    mtime_ns: int
    checksum: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """One model on this machine. ``root`` is the files' folder if that is not the model's own."""

    name: str
    source: str
    license: str | None
    directory: bool  # the model is the folder, not a single file
    files: tuple[VerifiedFile, ...]
    root: str | None = None


@dataclass(frozen=True, slots=True)
class InstalledModel:
    """A model that is on this machine whole.

    ``path`` is its file, or its folder of safetensors files; ``bytes`` counts all files.
    ``owned``: they are in Farthing's own folder, so that removing the model frees them.
    """

    name: str
    path: Path
    bytes: int
    source: str
    license: str | None
    owned: bool


@dataclass(frozen=True, slots=True)
class UnfinishedModel:
    """A download that broke off and can be resumed. Sizes in bytes."""

    name: str
    done: int
    total: int


class Store:
    """The models under ``<home>/models``. Methods that write need :meth:`lock` to be held."""

    def __init__(self, home: Path) -> None:
        """Nothing is created before something is written."""
        self.root = home / "models"

    def folder(self, name: str) -> Path:
        """The folder of a model of that name; the model need not be there.

        ``owner/repo:file`` becomes ``hub--owner--repo--file``; catalog names have no slash and
        stay. Raises ValueError for a name that no folder may be made of.
        """
        text = f"hub--{re.sub('[/:]', '--', name)}" if "/" in name else name
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]*", text):
            raise ValueError(f"{name!r} cannot name a folder")
        return self.root / text

    @contextlib.contextmanager
    def lock(self, name: str, progress: Progress, *, wait: bool = True) -> Iterator[Path]:
        """Hold a model's lock and get its folder; leave no empty folder behind.

        If another process holds it: wait and say so, or raise DownloadError.
        """
        folder = self.folder(name)
        home = self.root.parent
        made_here = [path for path in (self.root, home) if not path.exists()]

        def busy() -> None:
            if not wait:
                raise DownloadError(f"{name} is in use by another farthing process; try again")
            progress.note(f"another process is fetching {name}; waiting for it")

        try:
            with file_lock(self.root / ".locks" / f"{folder.name}.lock", busy):
                try:
                    yield folder
                finally:
                    _remove_empty(folder / SNAPSHOT, folder)
        finally:
            _remove_empty(*made_here)

    def read(self, folder: Path) -> Manifest | None:
        """The manifest of a folder; None if it has none that can be read."""
        try:
            raw = json.loads((folder / MANIFEST).read_text())
            if raw.pop("format") != _FORMAT:
                return None
            files = tuple(VerifiedFile(**file) for file in raw.pop("files"))
            manifest = Manifest(files=files, **raw)
            safe = self._names(manifest.name, folder) and all(
                _inside(file.name) and file.bytes >= 0 for file in files
            )
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None
        return manifest if files and safe else None

    def path(self, folder: Path, manifest: Manifest) -> Path:
        """Where the model is: a file, or a folder of files."""
        root = self._root(folder, manifest)
        return root if manifest.directory else root / manifest.files[0].name

    def present(self, name: str, checksum: str | None = None) -> Path | None:
        """The model's path if its files have the size and time they were verified with.

        With ``checksum``, a single file verified against another one does not count.
        """
        folder = self.folder(name)
        manifest = self.read(folder)
        if manifest is None or (checksum and manifest.files[0].checksum != checksum):
            return None
        root = self._root(folder, manifest)
        unchanged = all(_stamp(root / file.name) == _recorded(file) for file in manifest.files)
        return self.path(folder, manifest) if unchanged else None

    def recheck(self, folder: Path) -> str | None:
        """Compute the checksums of a model's files again and note the files' times.

        Return None if all are right, else the first file that is not, and why.
        """
        manifest = self.read(folder)
        if manifest is None:
            return f"{folder} has no readable {MANIFEST}"
        root = self._root(folder, manifest)
        for file in manifest.files:
            path = root / file.name
            if not path.is_file():
                return f"{path} is gone"
            if not file_matches(path, file.bytes, file.checksum):
                return f"{path} is not what was downloaded: its size or checksum changed"
        self._write(folder, manifest)
        return None

    def record(self, folder: Path, manifest: Manifest) -> Path:
        """Write the manifest of files just verified and return the path.

        The files' times are filled in. Our files of an earlier manifest that are not in this one
        are removed, and so is the beginning of a download that is not needed any more.
        """
        earlier = self.read(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self._write(folder, manifest)
        if earlier is not None and earlier.root is None:
            kept = {self._root(folder, manifest) / file.name for file in manifest.files}
            for file in earlier.files:
                path = self._root(folder, earlier) / file.name
                if path not in kept:
                    path.unlink(missing_ok=True)
        for pattern in ("*.partial", "*.partial.json"):
            for path in folder.rglob(pattern):
                path.unlink(missing_ok=True)
        return self.path(folder, manifest)

    def forget(self, folder: Path) -> None:
        """Drop a model that is no longer right: its manifest, and its files if they are ours."""
        manifest = self.read(folder)
        if manifest is not None and manifest.root is None:
            for file in manifest.files:
                (self._root(folder, manifest) / file.name).unlink(missing_ok=True)
        (folder / MANIFEST).unlink(missing_ok=True)

    def clear_stale(self, folder: Path) -> None:
        """Remove what a killed process left and nobody can use."""
        for work in folder.glob(f"{WORK}*"):
            shutil.rmtree(work, ignore_errors=True)
        for leftover in folder.rglob("*.json.new"):
            leftover.unlink(missing_ok=True)
        for state in folder.rglob("*.partial.json"):
            if not state.with_name(state.name.removesuffix(".json")).exists():
                state.unlink(missing_ok=True)

    def scan(self) -> Iterator[tuple[Path, Manifest]]:
        """All models that are here whole, by name; nothing is hashed."""
        found = [(folder, self.read(folder)) for folder in self._folders()]
        known = [(folder, manifest) for folder, manifest in found if manifest is not None]
        for folder, manifest in sorted(known, key=lambda item: item[1].name):
            root = self._root(folder, manifest)
            if all((root / file.name).is_file() for file in manifest.files):
                yield folder, manifest

    def installed(self) -> list[InstalledModel]:
        """The models of :meth:`scan` as a user sees them."""
        return [
            InstalledModel(
                manifest.name,
                self.path(folder, manifest),
                sum(file.bytes for file in manifest.files),
                manifest.source,
                manifest.license,
                manifest.root is None,
            )
            for folder, manifest in self.scan()
        ]

    def unfinished(self) -> dict[Path, UnfinishedModel]:
        """Downloads that broke off, by folder."""
        found: dict[Path, UnfinishedModel] = {}
        for folder in self._folders():
            for path in sorted(folder.rglob("*.partial.json")):
                state = read_state(path)
                if state is not None and self._names(state.name, folder):
                    found[folder] = UnfinishedModel(state.name, state.length, state.size)
        return found

    def remove(self, folder: Path) -> int:
        """Remove a model's folder and all in it; return the bytes of the files removed.

        Files used in place elsewhere stay. Raises DownloadError for what is no folder of ours.
        """
        if folder.parent != self.root or folder.is_symlink() or not folder.is_dir():
            raise DownloadError(f"{folder} is not a model folder of {self.root}; remove it by hand")
        freed = sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())
        shutil.rmtree(folder)
        return freed

    def _folders(self) -> list[Path]:
        try:
            return sorted(
                path for path in self.root.iterdir() if path.is_dir() and path.name[0] != "."
            )
        except OSError:
            return []

    def _names(self, name: str, folder: Path) -> bool:
        """Whether that is the name's folder; a name read from a file proves nothing."""
        try:
            return self.folder(name) == folder
        except (ValueError, TypeError):
            return False

    def _root(self, folder: Path, manifest: Manifest) -> Path:
        if manifest.root is not None:
            return Path(manifest.root)
        return folder / SNAPSHOT if manifest.directory else folder

    def _write(self, folder: Path, manifest: Manifest) -> None:
        root = self._root(folder, manifest)
        files = tuple(
            replace(file, mtime_ns=(root / file.name).stat().st_mtime_ns) for file in manifest.files
        )
        content = {"format": _FORMAT, **asdict(replace(manifest, files=files))}
        write_atomically(folder / MANIFEST, json.dumps(content, indent=1))


def _remove_empty(*folders: Path) -> None:
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


def _inside(name: str) -> bool:
    """Whether a relative file name stays inside its root."""
    parts = Path(name).parts
    return bool(parts) and not Path(name).is_absolute() and ".." not in parts and "\\" not in name


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


def _recorded(file: VerifiedFile) -> tuple[int, int]:
    return file.bytes, file.mtime_ns
