"""What the environment says about downloads, read once into one frozen value."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

_TRUE = frozenset({"1", "ON", "YES", "TRUE"})


@dataclass(frozen=True, slots=True)
class DownloadSettings:
    """Folders and switches of one download. Times in seconds.

    ``home`` is ``$FARTHING_HOME``, else ``farthing`` under the user's cache folder.
    ``model_path`` are further folders (``$FARTHING_MODEL_PATH``, separated like ``$PATH``) whose
    files are used in place when size and SHA-256 are a wanted model's, whatever their names.
    ``hub_cache`` is the hub client's own cache, read in place and never written.
    ``offline`` is the hub client's ``HF_HUB_OFFLINE``; here it forbids every source with a network.
    ``hub_timeout`` bounds the first answer of the hub, name look-up included.
    """

    home: Path
    model_path: tuple[Path, ...]
    hub_cache: Path
    hub_endpoint: str | None
    hub_timeout: float
    hub_read_timeout: float
    offline: bool

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> DownloadSettings:
        """Read the settings; ``environ`` is ``os.environ`` if not given."""
        env = os.environ if environ is None else environ
        home = env.get("FARTHING_HOME")
        return cls(
            home=_path(home) if home else _user_cache(env) / "farthing",
            model_path=tuple(
                _path(entry)
                for entry in env.get("FARTHING_MODEL_PATH", "").split(os.pathsep)
                if entry
            ),
            hub_cache=_hub_cache(env),
            hub_endpoint=env.get("HF_ENDPOINT") or None,
            hub_timeout=_seconds(env.get("HF_HUB_ETAG_TIMEOUT"), 5.0),
            hub_read_timeout=_seconds(env.get("HF_HUB_DOWNLOAD_TIMEOUT"), 10.0),
            offline=any(
                env.get(name, "").upper() in _TRUE
                for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
            ),
        )

    def with_offline(self, offline: bool | None) -> DownloadSettings:
        """These settings with ``offline`` replaced, unless it is None."""
        return self if offline is None else replace(self, offline=offline)


def _path(text: str) -> Path:
    return Path(os.path.expandvars(text)).expanduser().absolute()


def _user_cache(env: Mapping[str, str]) -> Path:
    if sys.platform == "win32" and env.get("LOCALAPPDATA"):
        return Path(env["LOCALAPPDATA"])
    xdg = env.get("XDG_CACHE_HOME")
    return _path(xdg) if xdg else Path.home() / ".cache"


def _hub_cache(env: Mapping[str, str]) -> Path:
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if value := env.get(name):
            return _path(value)
    if value := env.get("HF_HOME"):
        return _path(value) / "hub"
    xdg = env.get("XDG_CACHE_HOME")
    return (_path(xdg) if xdg else Path.home() / ".cache") / "huggingface" / "hub"


def _seconds(text: str | None, default: float) -> float:
    try:
        value = float(text or default)
    except ValueError:
        return default
    return value if value > 0 else default
