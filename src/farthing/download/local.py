"""Files that are on this machine already: extra folders and the hub client's own cache."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from farthing.download.integrity import file_matches
from farthing.download.progress import Progress
from farthing.download.settings import DownloadSettings
from farthing.download.source import HubFile, ModelFile


def find_local(wanted: ModelFile, settings: DownloadSettings, progress: Progress) -> Path | None:
    """A file with the wanted size and checksum, in ``model_path`` or the hub client's cache."""
    for path in _candidates(wanted, settings):
        with contextlib.suppress(OSError):
            if path.stat().st_size == wanted.bytes:
                progress.note(f"checking {path}")
                if file_matches(path, wanted.bytes, wanted.checksum):
                    return path.absolute()
    return None


def cached_snapshots(repository: str, settings: DownloadSettings) -> list[Path]:
    """Snapshot folders of a repository in the hub client's cache, the newest first.

    Layout: ``models--owner--name/snapshots/<commit>/<file>`` (Hugging Face hub documentation,
    "Understand caching").
    """
    folder = settings.hub_cache / f"models--{repository.replace('/', '--')}" / "snapshots"
    try:
        snapshots = [path for path in folder.iterdir() if path.is_dir()]
    except OSError:
        return []
    return sorted(snapshots, key=lambda path: path.stat().st_mtime_ns, reverse=True)


def _candidates(wanted: ModelFile, settings: DownloadSettings) -> Iterator[Path]:
    for folder in settings.model_path:
        try:
            yield from sorted(path for path in folder.iterdir() if path.is_file())
        except OSError:
            continue
    for source in wanted.sources:
        if isinstance(source, HubFile):
            for snapshot in cached_snapshots(source.repository, settings):
                yield snapshot / source.filename
