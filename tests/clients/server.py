"""``farthing serve`` as a process of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from support.command_line import COMMAND

NAME = "tiny-model"
"""The name of the model in the API."""

START_SECONDS = 60.0
STOP_SECONDS = 30.0


@contextlib.contextmanager
def serving(model: Path, *options: str) -> Iterator[str]:
    """The server's address when it is ready. Ends it, and asserts that it ends as it should."""
    port = _free_port()
    address = ("--host", "127.0.0.1", "--port", str(port))
    with tempfile.TemporaryFile() as log:
        child = subprocess.Popen(
            [*COMMAND, "serve", str(model), *address, *options],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, "HF_HUB_OFFLINE": "1"},
        )
        url = f"http://127.0.0.1:{port}"
        try:
            _wait_until_ready(child, url)
            yield url
            child.send_signal(signal.SIGTERM)
            assert child.wait(STOP_SECONDS) == 0
        except BaseException:
            log.seek(0)
            print(log.read().decode(errors="replace")[-8000:])
            raise
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()


def _wait_until_ready(child: subprocess.Popen[bytes], url: str) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        assert child.poll() is None, f"the server ended with {child.returncode}"
        try:
            with urllib.request.urlopen(f"{url}/readyz", timeout=5):
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.05)
    raise AssertionError(f"not ready after {START_SECONDS} s")


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
