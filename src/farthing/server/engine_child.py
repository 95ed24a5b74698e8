"""The engine process as a child of this one: its start, its signals, its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence

from farthing.errors import FarthingError

# -P: no file in the working directory stands in for a module.
ENGINE_COMMAND = (sys.executable, "-P", "-m", "farthing.server.engine_process")

_SECRETS = frozenset({"FARTHING_API_KEY"})
"""Variables that are the server's alone."""

_FOR_THE_SERVER = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


class EngineChild:
    """A process of ``command`` with ``end``, whose number is its last argument.

    ``on_exit`` is called on the running event loop with its exit status, negative for a signal;
    ``was_killed`` tells then whether that is :meth:`kill`'s doing. Raises :class:`FarthingError`
    if it cannot be started.
    """

    def __init__(
        self, command: Sequence[str], end: socket.socket, on_exit: Callable[[int], None]
    ) -> None:
        self.was_killed = False
        loop = asyncio.get_running_loop()
        # What a terminal sends to all processes of a group is the server's to decide about; the
        # child lets it through when it ignores it.
        held = signal.pthread_sigmask(signal.SIG_BLOCK, _FOR_THE_SERVER)
        try:
            # Not asyncio's: uvloop gives children an empty mask.
            self._process = subprocess.Popen(
                [*command, str(end.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[end.fileno()],
                env={name: value for name, value in os.environ.items() if name not in _SECRETS},
            )
        except OSError as error:
            raise FarthingError(
                f"{command[0]}: the engine process cannot be started: {error.strerror or error}"
            ) from error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, held)

        def wait() -> None:
            status = self._process.wait()
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody asks any more
                loop.call_soon_threadsafe(on_exit, status)

        threading.Thread(target=wait, name="engine exit", daemon=True).start()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def abort(self) -> None:
        """Has it write the stacks of its threads to stderr and die, even if it was stopped."""
        self._process.send_signal(signal.SIGABRT)
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Ends it at once, if it has not ended."""
        if self._process.returncode is None:
            self.was_killed = True
            self._process.kill()


def describe_exit(status: int, *, was_killed: bool = False) -> str:
    """How a process ended, in words. ``was_killed``: by this one, having waited for its end."""
    if status >= 0:
        return f"exit status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"
    if name != "SIGKILL":
        return name
    if was_killed:
        return "SIGKILL, which the server sent as it did not end in time"
    return "SIGKILL (what the system sends when memory runs out)"
