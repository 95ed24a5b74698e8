"""A server of whatever make, run as a process for as long as something is asked of it."""

from __future__ import annotations

import contextlib
import http.client
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence

from farthing.errors import FarthingError

START_SECONDS = 120
STOP_SECONDS = 20


@contextlib.contextmanager
def running(name: str, command: Sequence[object], port: int) -> Iterator[None]:
    """Runs ``command``, which listens at ``port`` of this machine, while the block lasts.

    Raises :class:`FarthingError` with its last line if ``/health`` does not become 200.
    """
    with tempfile.TemporaryFile() as log:
        child = subprocess.Popen([*map(str, command)], stdout=log, stderr=subprocess.STDOUT)
        try:
            if not _ready(port, child):
                log.seek(0)
                lines = log.read().decode(errors="replace").strip().splitlines()
                last = lines[-1] if lines else "no message"
                raise FarthingError(f"{name}: does not become ready: {last}")
            yield
        finally:
            child.terminate()
            try:
                child.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def free_port() -> int:
    """A port of this machine that nobody listens at."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def _ready(port: int, child: subprocess.Popen[bytes]) -> bool:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and child.poll() is None:
        if _is_healthy(port):
            return True
        time.sleep(0.1)
    return False


def _is_healthy(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()
