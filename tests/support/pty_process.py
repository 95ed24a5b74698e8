"""A program on a terminal of its own: type into it, wait for what it shows."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from types import TracebackType


class PtyProcess:
    """Runs ``command`` with stdin, stdout and stderr on a new controlling terminal."""

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        *,
        columns: int = 120,
        timeout: float = 60.0,
    ) -> None:
        self._timeout = timeout
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._incomplete = ""
        self._pending = ""
        self.raw = ""  # all that came, escape sequences included
        self._terminal, side = pty.openpty()
        fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))

        def take_terminal() -> None:
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self._process = subprocess.Popen(
            command,
            stdin=side,
            stdout=side,
            stderr=side,
            # Without what another terminal has said of itself.
            env={name: value for name, value in env.items() if name not in {"COLUMNS", "LINES"}},
            preexec_fn=take_terminal,
        )
        os.close(side)

    def __enter__(self) -> PtyProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        os.close(self._terminal)

    def type(self, text: str) -> None:
        r"""Presses keys: ``\r`` Enter, ``\x03`` Ctrl-C, ``\x04`` Ctrl-D, ``\x1b\r`` Alt-Enter."""
        os.write(self._terminal, text.encode())

    def expect(self, pattern: str) -> re.Match[str]:
        """Waits until ``pattern`` shows; what is before and in it will not be found again."""
        deadline = time.monotonic() + self._timeout
        while True:
            found = re.search(pattern, self._pending, re.DOTALL)
            if found:
                self._pending = self._pending[found.end() :]
                return found
            if not self._read(deadline - time.monotonic()):
                raise AssertionError(
                    f"{pattern!r} did not show; since the last match:\n{self._pending}"
                )

    def wait(self) -> int:
        """The exit status, once the program has ended by itself."""
        deadline = time.monotonic() + self._timeout
        while self._read(deadline - time.monotonic()):
            pass
        return self._process.wait(timeout=max(deadline - time.monotonic(), 1.0))

    def _read(self, seconds: float) -> bool:
        """Takes over what is shown within ``seconds``; False if that is nothing any more."""
        ready, _, _ = select.select([self._terminal], [], [], max(seconds, 0.0))
        if not ready:
            return False
        try:
            data = os.read(self._terminal, 65536)
        except OSError:  # the other side is closed
            return False
        new = self._decoder.decode(data)
        self.raw += new
        shown, self._incomplete = _without_escapes(self._incomplete + new)
        self._pending += shown
        return bool(data)


_ESCAPE = re.compile(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|\][^\x07]*\x07|[()][A-Z0-9]|[=>78])")


def _without_escapes(text: str) -> tuple[str, str]:
    """``text`` without escape sequences, and a sequence at its end that is not complete yet."""
    shown = _ESCAPE.sub("", text)
    start = shown.find("\x1b")
    return (shown, "") if start < 0 else (shown[:start], shown[start:])
