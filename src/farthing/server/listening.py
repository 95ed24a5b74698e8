"""Sockets to listen on, bound before anything that takes long."""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from farthing.errors import InvalidParameterError

BACKLOG = 2048


def bind(host: str, port: int) -> list[socket.socket]:
    """A socket for each address of ``host``; all have the same port, 0 takes a free one.

    Raises :class:`InvalidParameterError` for a host that is not this machine's and a port that is
    taken or not allowed.
    """
    try:
        found = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (socket.gaierror, UnicodeError):
        raise InvalidParameterError(f"--host {host}: there is no such host") from None
    sockets: list[socket.socket] = []
    try:
        for family, _, _, _, address in dict.fromkeys(found):
            if sockets:  # the port that the first was given
                address = (address[0], sockets[0].getsockname()[1], *address[2:])
            sockets.append(_bound(family, address))
    except OSError as error:
        for each in sockets:
            each.close()
        raise InvalidParameterError(_why(error, host, port)) from None
    return sockets


def _bound(family: int, address: tuple[Any, ...]) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:  # the IPv4 address has a socket of its own
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
        listener.listen(BACKLOG)  # now: two servers can both bind, only one can listen
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def _why(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"--port {port}: another program listens on {host}:{port}; stop it or take another port"
        )
    if error.errno == errno.EACCES:
        return f"--port {port}: this user may not listen there; ports from 1024 on are free to all"
    if error.errno in (errno.EADDRNOTAVAIL, errno.ENODEV):
        return f"--host {host}: this is no address of this machine"
    return f"--host {host} --port {port}: {error.strerror or error}"


def bind_unix(path: str) -> list[socket.socket]:
    """A Unix socket at ``path``, for this user alone; one that nobody listens on is replaced.

    Raises :class:`InvalidParameterError`.
    """
    place = Path(path)
    try:
        if place.exists() or place.is_symlink():
            if not stat.S_ISSOCK(place.lstat().st_mode):
                raise InvalidParameterError(f"--uds {path}: there is something that is no socket")
            if _somebody_listens(path):
                raise InvalidParameterError(f"--uds {path}: another program listens there")
            place.unlink()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)
        try:
            listener.bind(path)
            listener.listen(BACKLOG)
            listener.setblocking(False)
        except BaseException:
            listener.close()
            raise
        finally:
            os.umask(before)
    except OSError as error:
        raise InvalidParameterError(f"--uds {path}: {error.strerror or error}") from None
    return [listener]


def _somebody_listens(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return False
        return True


def addresses(sockets: Sequence[socket.socket], *, tls: bool) -> list[str]:
    """Where clients find what listens on ``sockets``."""
    scheme = "https" if tls else "http"
    found = []
    for each in sockets:
        name = each.getsockname()
        if each.family == socket.AF_UNIX:
            found.append(f"unix:{name}")
        else:
            host = f"[{name[0]}]" if ":" in name[0] else name[0]
            found.append(f"{scheme}://{host}:{name[1]}/v1")
    return found
