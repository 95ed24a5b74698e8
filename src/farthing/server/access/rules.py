"""What a server asks of those who come, and what it may be called."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field

from farthing.errors import InvalidParameterError
from farthing.server.access.keys import ApiKeys

_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s]+|null|\*", re.IGNORECASE)
_AUTHORITY = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[^\[\]:/@\s]+)(?::(?P<port>[0-9]{1,5}))?")
_DEFAULT_PORTS = {"http": "80", "https": "443"}


@dataclass(frozen=True)
class AccessRules:
    """Who is let in.

    ``loopback``: only this machine can connect, so that whoever calls the server by another name
    is a web page that has had its own name point here. ``allowed_hosts`` are names it may have all
    the same (``*.example.com``, ``*``); elsewhere they are the only names if there are any.
    ``allowed_*`` and ``allow_credentials`` are those of CORS, closed without origins.

    Raises :class:`InvalidParameterError` for an origin that is none, and for credentials of all.
    """

    keys: ApiKeys = field(default_factory=ApiKeys)
    loopback: bool = True
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    allowed_methods: tuple[str, ...] = ("*",)
    allowed_headers: tuple[str, ...] = ("*",)
    allow_credentials: bool = False

    def __post_init__(self) -> None:
        for origin in self.allowed_origins:
            if not _ORIGIN.fullmatch(origin):
                raise InvalidParameterError(
                    f"allowed_origins={origin!r}: write it as a browser sends it, "
                    "like http://localhost:3000, or * for all"
                )
        if self.allow_credentials and "*" in self.allowed_origins:
            raise InvalidParameterError(
                "credentials cannot be allowed to all origins; name those that may send them"
            )

    def allows_host(self, host: str) -> bool:
        """Whether a request may have this ``Host``."""
        if not self.loopback and not self.allowed_hosts:
            return True
        name = host_name(host)
        if name is None:
            return False
        if self.loopback and is_loopback(name):
            return True
        return any(_matches(name, allowed.lower()) for allowed in self.allowed_hosts)

    def allows_origin(self, origin: str, host: str | None) -> bool:
        """Whether a page of ``origin`` may ask a server that it calls ``host``."""
        if not self.loopback or "*" in self.allowed_origins or origin in self.allowed_origins:
            return True
        scheme, separator, authority = origin.lower().partition("://")
        if not separator or host is None:
            return False
        return _with_port(authority, scheme) == _with_port(host.lower(), scheme)


def is_loopback(name: str) -> bool:
    """Whether a host of this name or address is this machine, whatever a name server says."""
    name = name.lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def host_name(host: str) -> str | None:
    """The name or address in a ``Host`` header, small letters, no port; None if there is none."""
    found = _AUTHORITY.fullmatch(host)
    return found["name"].strip("[]").lower().rstrip(".") if found else None


def _matches(name: str, allowed: str) -> bool:
    if allowed.startswith("*."):
        return name.endswith(allowed[1:])
    return allowed == "*" or name == allowed.strip("[]")


def _with_port(authority: str, scheme: str) -> tuple[str, str] | None:
    found = _AUTHORITY.fullmatch(authority)
    if found is None:
        return None
    return found["name"], found["port"] or _DEFAULT_PORTS.get(scheme, "")
