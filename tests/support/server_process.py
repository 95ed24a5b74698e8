"""``farthing serve`` as a process of its own, with an engine process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import httpx2
import psutil

from support.command_line import COMMAND
from support.reachable import Reachable

PATIENCE = 60.0
"""Seconds after which a test gives up; nothing is measured with it."""

FAULTY_SERVER = Path(__file__).parent / "faulty_server.py"
TINY = ("--threads", "1", "--port", "0", "--debug-endpoints")


def with_fault(fault: str, number: int | Path = 0) -> tuple[str, ...]:
    """The command with a fault of ``faulty_server.py``."""
    return sys.executable, str(FAULTY_SERVER), fault, str(number)


class ServerProcess(Reachable):
    """A child and what can be seen of it. ``url`` is known once it listens on TCP.

    ``arguments`` are all of them, in the place of others. What it writes to stderr is kept;
    ``preexec`` is called in the child before it begins.
    """

    def __init__(
        self,
        model: Path | str,
        *options: str,
        command: Sequence[str] = COMMAND,
        arguments: Sequence[str] | None = None,
        environment: dict[str, str] | None = None,
        stdout: int | IO[bytes] = subprocess.DEVNULL,
        stderr: int | IO[bytes] | None = None,
        preexec: Callable[[], None] | None = None,
        scheme: str = "http",
        uds: Path | None = None,
        **client: Any,
    ) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the server
        self._scheme = scheme
        self._uds = uds
        self._client_options = client
        if uds is not None:
            options = (*options, "--uds", str(uds))
            self._client_options["transport"] = httpx2.HTTPTransport(uds=str(uds))
        self._engine: psutil.Process | None = None
        if arguments is None:
            arguments = (str(model), *TINY, *options)
        self.child = subprocess.Popen(
            [
                *command,
                "serve",
                *([str(model), *TINY, *options] if arguments is None else arguments),
            ],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=self._log if stderr is None else stderr,
            env={**os.environ, "HF_HUB_OFFLINE": "1", **(environment or {})},
            preexec_fn=preexec,
            start_new_session=True,
        )
        self.process = psutil.Process(self.child.pid)

    # Its beginning

    def wait(self, what: Callable[[], Any], seconds: float = PATIENCE) -> Any:
        """Waits until ``what`` gives something that is true, and returns it."""
        end = time.monotonic() + seconds
        while not (found := what()):
            assert time.monotonic() < end, f"it never came to it\n{self.log()[-3000:]}"
            time.sleep(0.005)
        return found

    def _running(self) -> bool:
        assert self.child.poll() is None, (
            f"exit status {self.child.returncode}\n{self.log()[-3000:]}"
        )
        return True

    def listening(self) -> list[tuple[str, int]]:
        """Addresses at which it listens."""
        with contextlib.suppress(psutil.Error):
            return [
                (c.laddr.ip, c.laddr.port)
                for c in self.process.net_connections("tcp")
                if c.status == psutil.CONN_LISTEN
            ]
        return []

    def _answers_at(self, uds: Path) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(uds))
            except OSError:
                return False
            return True

    def until_listening(self) -> ServerProcess:
        """Waits until it can be connected to; it may be loading still."""
        if hasattr(self, "client"):
            return self
        if self._uds is not None:
            self.wait(lambda: self._running() and self._answers_at(self._uds))
            super().__init__("http://localhost", **self._client_options)
            return self
        host, port = self.wait(lambda: self._running() and self.listening())[0]
        host = f"[{host}]" if ":" in host else host
        super().__init__(f"{self._scheme}://{host}:{port}", **self._client_options)
        return self

    def until_ready(self) -> ServerProcess:
        """Waits until it takes requests."""
        self.until_listening()
        self.wait(lambda: self._running() and self.status("/readyz") == 200)
        self.engine()
        return self

    # What can be seen of it

    def status(self, path: str, **request: Any) -> int | None:
        """The status that a GET is answered with; None: nobody answers."""
        try:
            return self.client.get(path, **request).status_code
        except httpx2.TransportError:
            return None

    def engine(self) -> psutil.Process:
        """The engine process, which is the server's only child."""
        if self._engine is None:
            (self._engine,) = self.wait(self.process.children)
        return self._engine

    def has_engine(self) -> bool:
        """Whether the engine process that was seen is still there."""
        assert self._engine is not None
        with contextlib.suppress(psutil.NoSuchProcess):
            return self._engine.is_running() and self._engine.status() != psutil.STATUS_ZOMBIE
        return False

    def log(self) -> str:
        """All it has written to stderr, and its engine."""
        return os.pread(self._log.fileno(), 1 << 26, 0).decode(errors="replace")

    def entries(self, logger: str = "") -> list[dict[str, Any]]:
        """The records of its log, of that logger alone if one is named."""
        lines = [json.loads(line) for line in self.log().splitlines() if line.startswith("{")]
        return [line for line in lines if logger in ("", line["logger"])]

    def listening_line(self) -> dict[str, Any]:
        """What it says once it listens; a thread writes it, perhaps after the first answer."""
        first: dict[str, Any] = self.wait(lambda: self.entries("farthing.server"))[0]
        return first

    def ready_line(self) -> dict[str, Any]:
        """What it says when it is ready; likewise."""
        second: dict[str, Any] = self.wait(lambda: self.entries("farthing.server")[1:])[0]
        return second

    def metric(self, name: str) -> float:
        """The value of a metric, over all its labels."""
        lines = self.client.get("/metrics").text.splitlines()
        values = [line.split()[-1] for line in lines if line.partition("{")[0].split()[0] == name]
        assert values, name
        return sum(map(float, values))

    def invariants(self) -> dict[str, Any]:
        """Whether blocks and requests are accounted for (I1, I2)."""
        found: dict[str, Any] = self.client.get("/debug/invariants").json()
        assert found["problem"] is None
        in_all = found["free_blocks"] + found["held_blocks"] + found["cached_blocks"]
        assert in_all == found["num_blocks"] > 0
        return found

    def wait_idle(self) -> None:
        """Waits until nothing is in flight; then every block must be accounted for."""

        def idle() -> bool:
            found = self.invariants()
            return found["open_prompts"] == found["held_blocks"] == 0

        self.wait(idle)
        assert self.metric("vllm:num_requests_waiting") == 0
        assert self.metric("vllm:num_requests_running") == 0

    # Its end

    def signal(self, number: int = signal.SIGTERM) -> None:
        """Sends a signal to the server alone."""
        self.child.send_signal(number)

    def end(self, seconds: float = PATIENCE) -> int:
        """Waits for the exit; by then nothing of it may be left. The exit status."""
        status = self.child.wait(seconds)
        if self._engine is not None:
            assert not self.has_engine(), "an engine was left"
        return status

    def stop(self) -> int:
        """The exit status after SIGTERM."""
        self.signal()
        return self.end()

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            print(self.log()[-8000:])
        if self.child.poll() is None:
            self.child.kill()
            self.child.wait()
        if self._engine is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                self._engine.kill()
        if hasattr(self, "client"):  # it listened
            self.client.close()
        self._log.close()


@contextlib.contextmanager
def serving(model: Path, *options: str, **more: Any) -> Iterator[ServerProcess]:
    """A server that is ready. Asks it to stop at the end, and asserts that it does so in order."""
    with ServerProcess(model, *options, **more) as server:
        yield server.until_ready()
        assert server.stop() == 0
