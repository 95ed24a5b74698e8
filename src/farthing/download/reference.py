"""Models named by their place on the hub: ``owner/repo`` and ``owner/repo:file``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from farthing.download.fetch import fetch_file, fetch_snapshot, offline_refusal
from farthing.download.hub import HubEntry, HubListing, RepositoryMissingError, list_repository
from farthing.download.local import cached_snapshots
from farthing.download.progress import Progress
from farthing.download.settings import DownloadSettings
from farthing.download.source import HubFile, ModelFile, SourceUnavailable
from farthing.download.store import Store
from farthing.errors import DownloadError, ModelNotFoundError

_REPOSITORY = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_REFERENCE = re.compile(rf"({_REPOSITORY}/{_REPOSITORY})(?::([A-Za-z0-9][A-Za-z0-9._+/-]*))?")
_SIDE_FILES = frozenset(
    {
        "config.json",
        "generation_config.json",
        "model.safetensors.index.json",
        "tokenizer.json",
        "tokenizer.model",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
        "vocab.json",
        "merges.txt",
        "chat_template.jinja",
        "chat_template.json",
        "quantize_config.json",
    }
)


@dataclass(frozen=True, slots=True)
class HubReference:
    """A repository and, if named, one GGUF file of it: its file name, or its type (``Q4_K_M``)."""

    repository: str
    file: str | None = None

    @property
    def name(self) -> str:
        """The reference as the user writes it."""
        return self.repository if self.file is None else f"{self.repository}:{self.file}"


def parse_reference(text: str) -> HubReference | None:
    """The reference a text spells, or None if it spells none."""
    match = _REFERENCE.fullmatch(text)
    if match is None or ".." in text or "--" in match[1]:
        return None
    return HubReference(match[1], match[2])


def fetch_reference(
    reference: HubReference,
    settings: DownloadSettings,
    progress: Progress,
    *,
    refresh: bool = False,
) -> Path:
    """The path of a repository's GGUF file, or of the folder with its safetensors files.

    A model fetched earlier is taken as it is unless ``refresh``; without the hub, so is what the
    hub client has in its own cache. Raises ModelNotFoundError if the hub knows no such model, and
    DownloadError.
    """
    if settings.offline or not refresh:
        path = _stored(reference, settings, progress) or (
            _from_client_cache(reference, settings) if settings.offline else None
        )
        if path is not None:
            return path
    if settings.offline:
        raise DownloadError(offline_refusal(reference.name))
    try:
        listing = list_repository(reference.repository, "main", settings)
    except RepositoryMissingError as error:
        raise ModelNotFoundError(f"no model {reference.name!r}: the hub has {error}") from error
    except SourceUnavailable as error:
        if path := _stored(reference, settings, progress) or _from_client_cache(
            reference, settings
        ):
            progress.note(f"{reference.name} from the hub: {error}; using the copy that is here")
            return path
        raise DownloadError(
            f"{reference.name} could not be fetched: hub {reference.repository}: {error}"
        ) from error
    file = choose_gguf(reference, listing)
    if file is None:
        entries = choose_safetensors(reference, listing)
        return fetch_snapshot(reference.name, listing, entries, settings, progress)
    wanted = ModelFile(
        reference.name,
        PurePosixPath(file.name).name,
        file.bytes,
        file.checksum,
        (HubFile(listing.repository, file.name, listing.commit),),
        listing.license,
    )
    return fetch_file(wanted, settings, progress)


def choose_gguf(reference: HubReference, listing: HubListing) -> HubEntry | None:
    """The GGUF file that is meant; None if the repository is to be taken as safetensors.

    Without a file named: the only GGUF file, unless there are safetensors files. Raises
    ModelNotFoundError if none or several fit, with the names to choose from.
    """
    files = [entry for entry in listing.entries if entry.name.lower().endswith(".gguf")]
    if reference.file is None:
        if _weights(listing) or not files:
            return None
        fitting = files
    else:
        tag = reference.file.lower()
        fitting = [entry for entry in files if entry.name.lower() == tag] or [
            entry
            for entry in files
            if re.search(rf"(^|[._/-]){re.escape(tag)}\.gguf$", entry.name.lower())
        ]
    if len(fitting) == 1:
        return fitting[0]
    names = ", ".join(sorted(entry.name for entry in fitting or files)) or "none"
    what = "no such GGUF file" if not fitting else f"{len(fitting)} GGUF files"
    raise ModelNotFoundError(
        f"{reference.name} has {what}; name one as {reference.repository}:FILE, of: {names}"
    )


def choose_safetensors(reference: HubReference, listing: HubListing) -> tuple[HubEntry, ...]:
    """The top-level files that make a model folder. Raises ModelNotFoundError if it is none."""
    weights = _weights(listing)
    if not weights or listing.find("config.json") is None:
        raise ModelNotFoundError(
            f"{reference.name} has neither GGUF files nor safetensors files with a config.json"
        )
    sides = [entry for entry in listing.entries if entry.name in _SIDE_FILES]
    return tuple(sorted(sides + weights, key=lambda entry: (entry.bytes, entry.name)))


def _weights(listing: HubListing) -> list[HubEntry]:
    """Top-level safetensors files; ``model*`` alone if a second copy has other names."""
    found = [
        entry
        for entry in listing.entries
        if entry.name.endswith(".safetensors") and "/" not in entry.name
    ]
    return [entry for entry in found if entry.name.startswith("model")] or found


def _stored(reference: HubReference, settings: DownloadSettings, progress: Progress) -> Path | None:
    store = Store(settings.home)
    if path := store.present(reference.name):
        return path
    if store.read(store.folder(reference.name)) is None:
        return None
    with store.lock(reference.name, progress) as folder:
        problem = store.recheck(folder)
        if problem is None:
            return store.present(reference.name)
        progress.note(f"{reference.name}: {problem}; fetching it again")
    return None


def _from_client_cache(reference: HubReference, settings: DownloadSettings) -> Path | None:
    """What the hub client has of this model, unverified: without the hub nobody can tell more."""
    for snapshot in cached_snapshots(reference.repository, settings):
        names = sorted(
            path.relative_to(snapshot).as_posix() for path in snapshot.rglob("*") if path.is_file()
        )
        listing = HubListing(
            reference.repository,
            snapshot.name,
            None,
            tuple(HubEntry(name, 0, "") for name in names),
        )
        try:
            file = choose_gguf(reference, listing)
            if file is not None:
                return snapshot / file.name
            choose_safetensors(reference, listing)
        except ModelNotFoundError:
            continue
        return snapshot
    return None
