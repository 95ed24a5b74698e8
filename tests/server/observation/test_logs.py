"""Where the records of a process go."""

from __future__ import annotations

import logging
import os
import pty
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest

from farthing.server.observation.logs import (
    LogFormat,
    LogLevel,
    LogSettings,
    RequestLog,
    log_prompt,
    start_logs,
)
from farthing.server.observation.observation import Observation
from farthing.server.observation.record import RequestRecord
from support.log_files import as_they_were, log_file

SECRET = "my-secret-prompt"


@pytest.mark.parametrize("name", ["farthing.server.run", "uvicorn.error", "asyncio", "other.lib"])
def test_all_loggers_go_there(tmp_path: Path, name: str) -> None:
    with log_file(tmp_path / "log") as file:
        logging.getLogger(name).warning("of %s", name)
        (entry,) = file.entries()
    assert (entry["logger"], entry["message"], entry["level"]) == (name, f"of {name}", "warning")


@pytest.mark.parametrize(
    ("level", "own", "others"),
    [
        ("debug", 5, 5),
        ("info", 4, 3),
        ("warning", 3, 3),
        ("error", 2, 2),
        ("critical", 1, 1),
    ],
)
def test_levels(tmp_path: Path, level: LogLevel, own: int, others: int) -> None:
    """Of others, what they say of their own doings is left out but for debugging."""
    with log_file(tmp_path / "log", level=level) as file:
        for name in ("farthing.server.run", "uvicorn.error"):
            for how in ("debug", "info", "warning", "error", "critical"):
                getattr(logging.getLogger(name), how)("x")
        names = [entry["logger"] for entry in file.entries()]
    assert names == ["farthing.server.run"] * own + ["uvicorn.error"] * others


def test_uvicorns_own_access_log_is_silent(tmp_path: Path) -> None:
    with log_file(tmp_path / "log", level="debug") as file:
        logging.getLogger("uvicorn.access").info("GET /?key=secret")
        assert file.text() == ""


def test_warnings_are_logged(tmp_path: Path) -> None:
    with log_file(tmp_path / "log") as file:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("old and odd", UserWarning, stacklevel=1)
        (entry,) = file.entries()
    assert "old and odd" in entry["message"]


def record() -> RequestRecord:
    made = RequestRecord("r-1", "/v1/completions", "alice", model="m")
    made.answered()
    made.finish_reasons.append("length")
    made.prompt_tokens, made.completion_tokens = 5, 7
    return made


def test_the_request_log_has_all_but_text(tmp_path: Path) -> None:
    with log_file(tmp_path / "log", requests=True) as file:
        observation = Observation(RequestLog())
        made = record()
        observation.started(made)
        observation.prompt(made, [SECRET])
        observation.finished(made)
        (entry,) = file.entries()
        assert SECRET not in file.text()
    wanted = {"request_id": "r-1", "key_name": "alice", "outcome": "ok", "status": 200}
    assert wanted.items() <= entry.items()
    assert (entry["prompt_tokens"], entry["completion_tokens"]) == (5, 7)
    assert entry["finish_reasons"] == ["length"]
    assert entry["seconds"] >= 0


def test_prompts_are_logged_when_asked_for_and_a_warning_says_so(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": f"{SECRET}\n\x00\ud800"}]
    with log_file(tmp_path / "log", prompts=True) as file:
        observation = Observation(on_prompt=log_prompt)
        observation.prompt(record(), messages)
        warning, entry = file.entries()
    assert warning["level"] == "warning"
    assert "prompts are logged" in warning["message"]
    assert entry["request_id"] == "r-1"
    assert entry["prompt"] == [{"role": "user", "content": f"{SECRET}\n\x00\ufffd"}]


@pytest.mark.parametrize(
    ("wanted", "on_terminal", "is_json"),
    [
        ("auto", True, False),
        ("auto", False, True),
        ("json", True, True),
        ("text", False, False),
    ],
)
def test_people_read_text_and_machines_json(
    wanted: LogFormat, on_terminal: bool, is_json: bool
) -> None:
    reading, writing = pty.openpty() if on_terminal else os.pipe()
    with as_they_were():
        logs = start_logs(LogSettings(format=wanted), writing)
        logging.getLogger("farthing").info("hello")
        logs.flush(10)
        line = os.read(reading, 1000).decode()
        logs.close()
    os.close(reading)
    os.close(writing)
    assert line.startswith("{") == is_json
    assert "hello" in line


def test_dropped_records_are_counted_and_said(tmp_path: Path) -> None:
    with log_file(tmp_path / "log") as file:
        full = os.open("/dev/full", os.O_WRONLY)
        real = os.dup(file.fd)
        os.dup2(full, file.fd)
        for _ in range(3):
            logging.getLogger("farthing").info("lost")
        file.logs.flush(10)
        os.dup2(real, file.fd)
        os.close(real)
        os.close(full)
        logging.getLogger("farthing").info("found")
        entries = file.entries()
        assert file.logs.dropped == 3
    assert [entry["message"] for entry in entries] == [
        "found",
        "3 log records were dropped: their reader was too slow or the disk full",
    ]


def test_a_record_that_no_json_holds_is_counted(tmp_path: Path) -> None:
    with log_file(tmp_path / "log") as file:
        endless: list[object] = []
        endless.append(endless)
        logging.getLogger("farthing").info("x", extra={"fields": {"endless": endless}})
        assert file.text() == ""
        assert file.logs.dropped == 1


PROCESS = """
import logging, sys, time
from farthing.server.observation.logs import LogSettings, start_logs
logs = start_logs(LogSettings())
began = time.monotonic()
for i in range(20000):
    logging.getLogger("farthing.server").info("line %d", i)
took = time.monotonic() - began
logs.close(0.2)
print(took, logs.dropped)
"""


@pytest.mark.parametrize("stderr", ["closed pipe", "unread pipe", "full disk"])
def test_a_process_outlives_its_log(stderr: str) -> None:
    """It is not slowed, ends by itself, and exits with 0."""
    reading = -1
    if stderr == "full disk":
        writing = os.open("/dev/full", os.O_WRONLY)
    else:
        reading, writing = os.pipe()
    if stderr == "closed pipe":
        os.close(reading)
        reading = -1
    try:
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-c", PROCESS],
            stdout=subprocess.PIPE,
            stderr=writing,
            timeout=60,
            check=False,
        )
        total = time.monotonic() - began
    finally:
        os.close(writing)
        if reading >= 0:
            os.close(reading)
    assert done.returncode == 0
    took, dropped = done.stdout.split()
    assert int(dropped) > 0
    assert float(took) < 10, "20,000 lines, of which each may take half a millisecond"
    assert total < 30
