"""Short names for good small models, and the way from any model name to files on this machine.

Sources, sizes and licences in words: ``docs/models.md``.
"""

from __future__ import annotations

import difflib
import os
from pathlib import Path

from farthing.download.progress import Progress, Silent
from farthing.download.settings import DownloadSettings
from farthing.download.store import InstalledModel, Store, UnfinishedModel
from farthing.download.table import CATALOG, CatalogEntry
from farthing.errors import DownloadError, ModelFormatError, ModelNotFoundError

__all__ = [
    "CATALOG",
    "DEFAULT_MODEL",
    "CatalogEntry",
    "InstalledModel",
    "Progress",
    "UnfinishedModel",
    "find",
    "find_to_fetch",
    "installed",
    "pull",
    "remove",
    "resolve",
    "unfinished",
    "verify",
]

DEFAULT_MODEL = "qwen2.5-coder-0.5b"


def find(name: str) -> CatalogEntry | None:
    """The catalog's entry of that name or alias; case and ``:``, ``_`` for ``-`` do not matter."""
    key = name.strip().lower().replace(":", "-").replace("_", "-")
    return next((entry for entry in CATALOG if key in (entry.name, *entry.aliases)), None)


def find_to_fetch(name_or_path: str | os.PathLike[str]) -> CatalogEntry | None:
    """The entry that :func:`resolve` would fetch: None for a path that exists."""
    text = os.fspath(name_or_path)
    return find(text) if _existing_path(text) is None else None


def resolve(
    name_or_path: str | os.PathLike[str],
    *,
    progress: Progress | None = None,
    offline: bool | None = None,
) -> Path:
    """The file or folder of a model, fetched first if it is not here.

    In this order: a path that exists; a name of the catalog; ``owner/repo`` on the hub
    (its safetensors files, else its only GGUF file) or ``owner/repo:file`` (a GGUF file or type).
    ``offline`` None means as ``HF_HUB_OFFLINE`` says. Raises ModelNotFoundError, with the nearest
    names, and DownloadError, with each source's reason.
    """
    settings = DownloadSettings.from_environment().with_offline(offline)
    return _resolve(name_or_path, settings, progress or Silent(), refresh=False)


def pull(name: str, *, progress: Progress | None = None) -> Path:
    """Fetch a model, or what has changed of it on the hub, and return its path.

    Errors as :func:`resolve`.
    """
    settings = DownloadSettings.from_environment()
    return _resolve(name, settings, progress or Silent(), refresh=True)


def installed() -> list[InstalledModel]:
    """The models that are here whole, by name. Nothing is hashed; :func:`verify` does that."""
    return Store(DownloadSettings.from_environment().home).installed()


def unfinished() -> list[UnfinishedModel]:
    """Downloads that broke off; :func:`pull` resumes and :func:`remove` drops them."""
    store = Store(DownloadSettings.from_environment().home)
    return sorted(store.unfinished().values(), key=lambda model: model.name)


def remove(name: str) -> int:
    """Remove a model, or what came of it, from Farthing's folder; return the bytes freed.

    A file that is used in place elsewhere stays (0 bytes freed). ``name`` is looked up among the
    names that are here and never used as a path. Raises ModelNotFoundError, and DownloadError if
    another process is fetching it.
    """
    store = Store(DownloadSettings.from_environment().home)
    folder, known = _stored_folder(store, name)
    with store.lock(known, Silent(), wait=False):
        return store.remove(folder)


def verify(name: str) -> Path:
    """Compute a model's checksums again, compare them with those pinned, return its path.

    Raises ModelNotFoundError if the model is not here and ModelFormatError if it has changed.
    """
    store = Store(DownloadSettings.from_environment().home)
    folder, known = _stored_folder(store, name)
    manifest = store.read(folder)
    if manifest is None:
        raise DownloadError(f"{known} is not here whole; 'farthing pull {known}' resumes it")
    with store.lock(known, Silent()):
        problem = store.recheck(folder)
    path = store.path(folder, manifest)
    if problem is not None:
        raise ModelFormatError(path, f"{problem}; 'farthing pull {known}' fetches it again")
    return path


def _resolve(
    name_or_path: str | os.PathLike[str],
    settings: DownloadSettings,
    progress: Progress,
    *,
    refresh: bool,
) -> Path:
    text = os.fspath(name_or_path)
    path = _existing_path(text)
    if path is not None:
        return path
    entry = find(text)
    if entry is not None:
        from farthing.download.fetch import fetch_file

        return fetch_file(entry.file, settings, progress)
    if not isinstance(name_or_path, str) or _spells_path(text):
        raise ModelNotFoundError(f"no file or folder {text!r}")
    from farthing.download.reference import fetch_reference, parse_reference

    reference = parse_reference(text)
    if reference is None:
        raise _unknown(text, DownloadSettings.from_environment())
    return fetch_reference(reference, settings, progress, refresh=refresh)


def _existing_path(text: str) -> Path | None:
    if not text.strip():
        return None
    try:
        path = Path(text).expanduser() if text.startswith("~") else Path(text)
        return path if path.exists() else None
    except (OSError, ValueError, RuntimeError):  # too long, a zero byte, no such user
        return None


def _spells_path(text: str) -> bool:
    return (
        text.startswith((".", "/", "~"))
        or "\\" in text
        or text.lower().endswith(".safetensors")
        or (text.lower().endswith(".gguf") and ":" not in text)
    )


def _stored_folder(store: Store, name: str) -> tuple[Path, str]:
    """The folder of a model that is here, whole or not, and the name it is here under."""
    folders = {model.name: folder for folder, model in store.unfinished().items()}
    folders |= {manifest.name: folder for folder, manifest in store.scan()}
    entry = find(name)
    known = entry.name if entry is not None else name.strip()
    if known in folders:
        return folders[known], known
    here = ", ".join(sorted(folders)) or "none"
    raise ModelNotFoundError(f"no model {name!r} is on this machine; here are: {here}")


def _unknown(text: str, settings: DownloadSettings) -> ModelNotFoundError:
    names = {alias: entry.name for entry in CATALOG for alias in (entry.name, *entry.aliases)}
    names |= {manifest.name: manifest.name for _, manifest in Store(settings.home).scan()}
    close = difflib.get_close_matches(text.strip().lower(), names, n=5, cutoff=0.5)
    nearest = list(dict.fromkeys(names[alias] for alias in close))[:3]
    hint = f"did you mean {' or '.join(nearest)}? " if nearest else ""
    return ModelNotFoundError(
        f"no model {text!r}; {hint}'farthing list' shows all names, "
        "and a path, owner/repo or owner/repo:file.gguf is right too"
    )
