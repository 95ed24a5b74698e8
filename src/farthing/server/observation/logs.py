"""Where log records go, and in which form."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import Literal

from farthing.server.observation.log_lines import JsonLines, TextLines
from farthing.server.observation.log_writer import LineWriter
from farthing.server.observation.record import RequestRecord

LogFormat = Literal["auto", "json", "text"]
LogLevel = Literal["critical", "error", "warning", "info", "debug"]

STDERR = 2

logger = logging.getLogger("farthing.server")
request_logger = logging.getLogger("farthing.requests")


@dataclass(frozen=True, slots=True)
class LogSettings:
    """What is logged and how. ``auto``: text on a terminal, JSON elsewhere."""

    format: LogFormat = "auto"
    level: LogLevel = "info"
    access: bool = True  # a line for each HTTP request
    requests: bool = False  # a line for each generating request, with its counts and times
    prompts: bool = False  # and what was asked, as it came


class QueuedHandler(logging.Handler):
    """Gives the lines of records to a writer."""

    def __init__(self, fd: int, formatter: logging.Formatter) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self.unformatted = 0
        self.writer = LineWriter(fd, on_dropped=self._dropped_line)

    def emit(self, record: logging.LogRecord) -> None:
        """Never raises and never waits."""
        try:
            self.writer.put(self.format(record))
        except Exception:
            self.unformatted += 1

    @property
    def dropped(self) -> int:
        """Records that are in no log."""
        return self.writer.dropped + self.unformatted

    def _dropped_line(self, count: int) -> str:
        message = "%d log records were dropped: their reader was too slow or the disk full"
        record = logging.LogRecord(
            logger.name, logging.WARNING, __file__, 0, message, (count,), None
        )
        return self.format(record)


class Logs:
    """All logging of this process, from :func:`start_logs` to :meth:`close`."""

    def __init__(self, settings: LogSettings, handler: QueuedHandler) -> None:
        self.settings = settings
        self._handler = handler

    @property
    def dropped(self) -> int:
        """Records that are in no log since their reader was slow or gone, or the disk full."""
        return self._handler.dropped

    def flush(self, patience: float = 1.0) -> None:
        """Waits until all so far is written, ``patience`` seconds at most."""
        self._handler.writer.flush(patience)

    def close(self, patience: float = 1.0) -> None:
        """Ends it; waits ``patience`` seconds at most for what is not written yet.

        Later records are dropped: Python's last resort would wait for the reader.
        """
        self._handler.writer.close(patience)


_STRICTER = (logging.WARNING, logging.ERROR, logging.CRITICAL)


def start_logs(settings: LogSettings, fd: int = STDERR) -> Logs:
    """Sends the records of all loggers of the process, uvicorn's too, to ``fd`` as lines."""
    as_json = settings.format == "json" or (settings.format == "auto" and not os.isatty(fd))
    handler = QueuedHandler(fd, JsonLines() if as_json else TextLines())
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    root = logging.getLogger()
    for other in list(root.handlers):
        root.removeHandler(other)
    root.addHandler(handler)
    # What others say of their own doings is rarely of use; that uvicorn starts, we say ourselves.
    root.setLevel(level if level in (logging.DEBUG, *_STRICTER) else logging.WARNING)
    logging.getLogger("farthing").setLevel(level)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.asgi"):
        theirs = logging.getLogger(name)
        theirs.handlers.clear()
        theirs.propagate = True
        theirs.setLevel(logging.NOTSET)
    theirs = logging.getLogger("uvicorn.access")  # ours says more, and no query strings
    theirs.handlers.clear()
    theirs.propagate = False
    logging.captureWarnings(True)
    if settings.prompts:
        logger.warning("prompts are logged as they come (--log-prompts)")
    return Logs(settings, handler)


class RequestLog:
    """A line for each generating request that has ended."""

    def started(self, record: RequestRecord) -> None:
        """Nothing is known of it yet."""

    def finished(self, record: RequestRecord) -> None:
        """Writes all but its text."""
        request_logger.info("request", extra={"fields": record.as_fields()})


def log_prompt(request_id: str, prompt: object) -> None:
    """Writes what a request asks to continue."""
    fields = {"request_id": request_id, "prompt": prompt}
    request_logger.info("prompt", extra={"fields": fields})
