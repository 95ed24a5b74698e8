"""API keys: where they come from, and whose a presented one is."""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import stat
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from farthing.errors import FarthingError, InvalidParameterError
from farthing.server.principal import Principal

logger = logging.getLogger("farthing.server.access")

MAX_KEY = 1024  # characters
MAX_FILE = 1 << 20  # bytes of a file of keys

_KEY = re.compile(r"[!-+\--~]+")  # printable ASCII but the comma, which separates keys
_NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")
_WHOLE = re.compile(r"-?[0-9]{1,9}")
_GRANTS = {"requests_per_minute": 1, "max_concurrent_requests": 1, "priority": -(10**9)}
"""Fields of a line of the file that are whole numbers, and the least of each."""


class ApiKeys:
    """The keys of a server. Only their digests are kept: nothing here can print a key."""

    def __init__(self, keys: Iterable[tuple[str, Principal]] = ()) -> None:
        self._digests = [(_digest(key.encode()), principal) for key, principal in keys]

    @classmethod
    def from_sources(cls, values: Iterable[str] = (), file: Path | None = None) -> ApiKeys:
        """Keys given as ``values`` and as lines of ``file``.

        A value may be several keys with commas between them. A line of the file
        is a key and, after it, any of ``name=``, ``requests_per_minute=``,
        ``max_concurrent_requests=`` and ``priority=``; ``#`` begins a comment. Keys without a name
        are numbered. Two keys may have one name, so that one can replace the other, if they are
        granted the same.

        Raises :class:`InvalidParameterError` for a key that is empty, given twice, or not printable
        ASCII, and for a file that says anything else; :class:`FarthingError` if it cannot be read.
        """
        found = _Found()
        for value in values:
            found.add_list(value, "--api-key")
        if file is not None:
            _read_file(file, found)
        return cls(found.keys)

    def __len__(self) -> int:
        return len(self._digests)

    def __repr__(self) -> str:
        return f"ApiKeys({len(self)} keys)"

    def principal_of(self, presented: bytes) -> Principal | None:
        """Whose key ``presented`` is; the time it takes tells nothing of the keys."""
        digest = _digest(presented)
        found = None
        for known, principal in self._digests:
            if hmac.compare_digest(digest, known):
                found = principal
        return found


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


class _Found:
    """Keys so far; ``where`` of an error is a flag, a variable or a line, never a key."""

    def __init__(self) -> None:
        self.keys: list[tuple[str, Principal]] = []
        self._seen: dict[bytes, str] = {}
        self._granted: dict[str, Principal] = {}

    def add_list(self, value: str, where: str) -> None:
        for key in value.split(","):
            self.add(key.strip(), Principal(""), where)

    def add(self, key: str, principal: Principal, where: str) -> None:
        if not key:
            raise InvalidParameterError(f"{where}: the key is empty; leave it out to ask for none")
        if not _KEY.fullmatch(key) or len(key) > MAX_KEY:
            raise InvalidParameterError(
                f"{where}: a key is 1 to {MAX_KEY} printable ASCII characters, no space, no comma"
            )
        digest = _digest(key.encode())
        if digest in self._seen:
            raise InvalidParameterError(f"{where}: this key was given before, {self._seen[digest]}")
        self._seen[digest] = f"by {where}"
        if not principal.name:
            principal = replace(principal, name=self._free_name())
        if self._granted.setdefault(principal.name, principal) != principal:
            raise InvalidParameterError(
                f"{where}: another key has the name {principal.name} and is granted something else"
            )
        self.keys.append((key, principal))

    def _free_name(self) -> str:
        number = len(self.keys) + 1
        while f"key-{number}" in self._granted:
            number += 1
        return f"key-{number}"


def _read_file(file: Path, found: _Found) -> None:
    try:
        with file.open("rb") as opened:
            raw = opened.read(MAX_FILE + 1)
            mode = file.stat().st_mode
    except OSError as error:
        raise FarthingError(f"cannot read the keys in {file}: {error.strerror}") from None
    if len(raw) > MAX_FILE:
        raise InvalidParameterError(f"{file}: a file of keys is at most {MAX_FILE} bytes")
    if stat.S_ISREG(mode) and mode & stat.S_IROTH:
        logger.warning("%s: others on this machine can read the keys; chmod 600 it", file)
    before = len(found.keys)
    for number, line in enumerate(raw.split(b"\n"), 1):
        _read_line(line, f"{file}, line {number}", found)
    if len(found.keys) == before:
        raise InvalidParameterError(f"{file}: there is no key in it")


def _read_line(line: bytes, where: str, found: _Found) -> None:
    try:
        words = line.decode("ascii").split()
    except UnicodeDecodeError:
        raise InvalidParameterError(f"{where}: there is something that is not ASCII") from None
    for at, word in enumerate(words):
        if word.startswith("#"):
            del words[at:]
            break
    if not words:
        return
    name = ""
    grants: dict[str, int] = {}
    for field in words[1:]:
        what, equals, value = field.partition("=")
        if not equals or what in grants or (what == "name" and name):
            raise InvalidParameterError(f"{where}: after the key, each field once as field=value")
        if what == "name":
            if not _NAME.fullmatch(value):
                raise InvalidParameterError(f"{where}: a name is 1 to 64 of A-Z a-z 0-9 . _ @ -")
            name = value
        elif what in _GRANTS:
            if not _WHOLE.fullmatch(value) or int(value) < _GRANTS[what]:
                raise InvalidParameterError(f"{where}: {what} must be a whole number, 1 or more")
            grants[what] = int(value)
        else:
            raise InvalidParameterError(
                f"{where}: the fields after a key are name, {', '.join(_GRANTS)}"
            )
    principal = Principal(
        name,
        priority=grants.get("priority", 0),
        requests_per_minute=grants.get("requests_per_minute"),
        max_concurrent_requests=grants.get("max_concurrent_requests"),
    )
    found.add(words[0], principal, where)
