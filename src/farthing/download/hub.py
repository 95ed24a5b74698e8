"""The model hub: what a repository holds, and its files, resumed where they broke off.

Addresses, tokens, proxies and errors are the hub client's (``huggingface_hub``); the transfer is
ours because the client keeps nothing of a file that broke off.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from farthing.download.partial import PartialFile
from farthing.download.settings import DownloadSettings
from farthing.download.source import SourceUnavailable
from farthing.errors import FarthingError

T = TypeVar("T")

_ATTEMPTS = 4  # in a row that bring no byte
_WAIT = 0.5  # seconds before the second attempt, doubled for each further one
_MARK_BYTES = 16 << 20  # a killed process loses at most this,
_MARK_SECONDS = 2.0  # or what came in this time
_HEADERS = {"Accept-Encoding": "identity"}  # a range must count the file's own bytes
_REFUSED = {401: "needs a token (HF_TOKEN)", 403: "is not open to you (licence or token, HF_TOKEN)"}


class RepositoryMissingError(SourceUnavailable):
    """The hub answers that there is no such repository, revision or file (or it is private)."""


@dataclass(frozen=True, slots=True)
class HubEntry:
    """A file of a repository: its name there, bytes, and checksum as in ``ModelFile``."""

    name: str
    bytes: int
    checksum: str


@dataclass(frozen=True, slots=True)
class HubListing:
    """A repository at one commit."""

    repository: str
    commit: str
    license: str | None
    entries: tuple[HubEntry, ...]

    def find(self, name: str) -> HubEntry | None:
        """The entry of that name."""
        return next((entry for entry in self.entries if entry.name == name), None)


def list_repository(repository: str, revision: str, settings: DownloadSettings) -> HubListing:
    """Ask the hub what a repository holds; one question, answered within ``hub_timeout``.

    Raises SourceUnavailable.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    api = HfApi(endpoint=settings.hub_endpoint, library_name="farthing")
    try:
        info = _within(
            settings.hub_timeout,
            lambda: api.model_info(
                repository,
                revision=revision,
                files_metadata=True,
                timeout=settings.hub_timeout,
            ),
        )
    except GatedRepoError as error:
        raise SourceUnavailable(f"{repository} {_REFUSED[403]}") from error
    except RepositoryNotFoundError as error:
        raise RepositoryMissingError(
            f"no repository {repository} (a private one needs HF_TOKEN)"
        ) from error
    except RevisionNotFoundError as error:
        raise RepositoryMissingError(f"{repository} has no revision {revision}") from error
    except HfHubHTTPError as error:
        raise SourceUnavailable(f"HTTP {error.response.status_code}") from error
    except Exception as error:
        raise SourceUnavailable(_no_connection(error, settings)) from error
    entries = []
    for sibling in info.siblings or ():
        if sibling.lfs is not None:
            size, checksum = sibling.lfs.size, f"sha256:{sibling.lfs.sha256}"
        elif sibling.size is not None and sibling.blob_id is not None:
            size, checksum = sibling.size, f"git-sha1:{sibling.blob_id}"
        else:
            continue
        entries.append(HubEntry(sibling.rfilename, size, checksum))
    card = info.card_data
    return HubListing(
        repository,
        info.sha or revision,
        str(card["license"]) if card is not None and card.get("license") else None,
        tuple(entries),
    )


def fetch_from_hub(
    repository: str,
    filename: str,
    revision: str,
    partial: PartialFile,
    settings: DownloadSettings,
    tick: Callable[[int], None],
) -> None:
    """Append to ``partial`` what it lacks; ``tick`` gets the file's bytes that are here.

    A transfer that breaks off is taken up at the next byte, up to four times in a row without
    any new one. Raises SourceUnavailable; what has come stays in ``partial``.
    """
    from huggingface_hub import hf_hub_url

    url = hf_hub_url(repository, filename, revision=revision, endpoint=settings.hub_endpoint)
    failures = 0
    while partial.offset < partial.size:
        before = partial.offset
        try:
            _transfer(url, partial, settings, tick)
            reason = f"ended after {partial.offset:,} of {partial.size:,} bytes"
        except (FarthingError, SourceUnavailable):
            raise
        except Exception as error:
            reason = f"broke off after {partial.offset:,} of {partial.size:,} bytes"
            reason += f" ({_name(error)})"
        failures = 0 if partial.offset > before else failures + 1
        if failures >= _ATTEMPTS:
            raise SourceUnavailable(reason)
        if failures:
            time.sleep(_WAIT * 2 ** (failures - 1))


def _transfer(
    url: str, partial: PartialFile, settings: DownloadSettings, tick: Callable[[int], None]
) -> None:
    """One request for the bytes from ``partial.offset`` on. Network errors pass through."""
    from huggingface_hub import get_session
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

    headers = build_hf_headers(library_name="farthing") | _HEADERS
    if partial.offset:
        headers["Range"] = f"bytes={partial.offset}-"
    timeout = settings.hub_read_timeout
    with get_session().stream("GET", url, headers=headers, timeout=timeout) as response:
        _check_status(response, url, partial)
        marked, at = partial.offset, time.monotonic()
        for chunk in response.iter_raw():
            if partial.offset + len(chunk) > partial.size:
                raise SourceUnavailable(f"more than the announced {partial.size:,} bytes came")
            partial.write(chunk)
            now = time.monotonic()
            if partial.offset - marked >= _MARK_BYTES or now - at >= _MARK_SECONDS:
                partial.mark()
                marked, at = partial.offset, now
            tick(partial.offset)


def _check_status(response: Any, url: str, partial: PartialFile) -> None:
    status = response.status_code
    if status == 206:
        start = response.headers.get("Content-Range", "").removeprefix("bytes ").partition("-")[0]
        if start != str(partial.offset):
            raise SourceUnavailable(f"asked for bytes from {partial.offset}, got them from {start}")
    elif status == 200:
        partial.rewind(0)  # the server does not resume
    elif status in (408, 429) or status >= 500:
        raise ConnectionError(f"HTTP {status}")
    elif status == 404:
        raise RepositoryMissingError(f"no file at {url}")
    else:
        raise SourceUnavailable(
            f"the file {_REFUSED[status]}" if status in _REFUSED else f"HTTP {status}"
        )


def _within(seconds: float, call: Callable[[], T]) -> T:
    """The call's result, or TimeoutError: a name look-up knows no time limit of its own."""
    results: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            results.put((call(), None))
        except BaseException as error:
            results.put((None, error))

    threading.Thread(target=run, daemon=True, name="farthing-hub").start()
    try:
        value, error = results.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(f"no answer within {seconds:g} s") from None
    if error is not None:
        raise error
    return value  # type: ignore[return-value]


def _no_connection(error: Exception, settings: DownloadSettings) -> str:
    if isinstance(error, TimeoutError) or "Timeout" in type(error).__name__:
        return f"no answer within {settings.hub_timeout:g} s"
    return f"no connection ({_name(error)})"


def _name(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:160]}" if text else type(error).__name__
