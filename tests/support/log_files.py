"""The log of this process in a file, for as long as a test takes."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from farthing.server.observation.logs import Logs, LogSettings, start_logs


class LogFile:
    """Logs to a file, and gives back what is in it."""

    def __init__(self, path: Path, settings: LogSettings) -> None:
        self._path = path
        self.fd = os.open(path, os.O_WRONLY | os.O_CREAT)
        self.logs: Logs = start_logs(settings, self.fd)

    def text(self) -> str:
        self.logs.flush(10)
        return self._path.read_text()

    def entries(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text().splitlines()]


@contextlib.contextmanager
def as_they_were() -> Iterator[None]:
    """What :func:`start_logs` changes for the whole process, put back."""
    names = ["", "farthing", "uvicorn", "uvicorn.error", "uvicorn.asgi", "uvicorn.access"]
    loggers = [logging.getLogger(name) for name in names]
    before = [(each.level, list(each.handlers), each.propagate) for each in loggers]
    try:
        yield
    finally:
        logging.captureWarnings(False)
        for each, (level, handlers, propagate) in zip(loggers, before, strict=True):
            each.setLevel(level)
            each.handlers[:] = handlers
            each.propagate = propagate


@contextlib.contextmanager
def log_file(path: Path, **settings: Any) -> Iterator[LogFile]:
    with as_they_were():
        file = LogFile(path, LogSettings(**settings))
        try:
            yield file
        finally:
            file.logs.close()
            os.close(file.fd)
