"""An engine that fails, dies or hangs: everybody is told, and the server ends so that it shows."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import httpx2
import pytest

from support.crowds import Crowd, asked, error_of
from support.reachable import COMPLETIONS, Streaming
from support.server_process import ServerProcess, with_fault

SECONDS = 10.0
BODIES = [asked(number, 200) for number in range(6)]


def all_are_told(
    server: ServerProcess, crowd: Crowd, reason: str, code: str = "engine_crashed"
) -> None:
    """Asserts that each request ended once, with an error that says why, and the server with 1."""
    for body, response in zip(BODIES, crowd.responses(), strict=True):
        error = error_of(response)
        assert error["type"] in ("server_error", "service_unavailable")
        if response.status_code == 503:  # it came when the engine was gone
            assert int(response.headers["retry-after"]) >= 1
        else:
            # A stream may have begun, or not yet.
            assert response.status_code in ((200, 500) if body["stream"] else (500,))
            assert reason in error["message"]
            assert error["code"] == code
    assert server.end() == 1


def new_are_refused(server: ServerProcess) -> None:
    """Whoever comes until it is gone is told 503, nothing else."""
    statuses = set()
    while True:
        try:
            with httpx2.Client(base_url=server.url, timeout=60) as client:
                statuses.add(client.post(COMPLETIONS, json={"prompt": "a"}).status_code)
        except httpx2.TransportError:
            break
    assert statuses <= {503}


EVERY = range(1, 21)
ORDINARY = (1, 7)


@pytest.mark.parametrize(
    "step",
    [step if step in ORDINARY else pytest.param(step, marks=pytest.mark.slow) for step in EVERY],
)
def test_a_step_that_raises(step: int, life_model: Path) -> None:
    """X11."""
    with ServerProcess(life_model, command=with_fault("raise", step)) as server:
        server.until_ready()
        with Crowd(server, BODIES) as crowd:
            began = time.monotonic()
            all_are_told(server, crowd, "RuntimeError: a fault of a test")
            assert time.monotonic() - began < SECONDS
        (entry,) = [e for e in server.entries("farthing.server") if e["level"] == "error"]
        assert "the engine has failed (exit status 1): RuntimeError" in entry["message"]
        assert "faulty_run" in server.log()


def test_who_comes_while_the_answers_end_is_refused(life_model: Path) -> None:
    """A client that does not read its error holds the server for a while; nobody else gets in."""
    body = {**asked(0, 1900), "n": 8, "return_token_ids": True}
    with ServerProcess(life_model, command=with_fault("raise", 300)) as server:
        server.until_ready()
        stream = Streaming(server, COMPLETIONS, body)
        assert stream.piece()
        server.wait(lambda: server.status("/health") in (503, None))
        new_are_refused(server)
        assert server.end() == 1
        stream.leave()


@pytest.mark.parametrize(
    ("kill", "reason"),
    [
        (signal.SIGKILL, "SIGKILL"),
        pytest.param(signal.SIGSEGV, "SIGSEGV", marks=pytest.mark.slow),
    ],
)
def test_an_engine_that_is_killed(kill: int, reason: str, life_model: Path) -> None:
    with ServerProcess(life_model, command=with_fault("slow", 4)) as server:
        server.until_ready()
        with Crowd(server, BODIES) as crowd:
            server.wait(lambda: server.metric("vllm:num_requests_running") == 6)
            began = time.monotonic()
            os.kill(server.engine().pid, kill)
            all_are_told(server, crowd, reason)
            assert time.monotonic() - began < SECONDS
        assert reason in server.entries("farthing.server")[-1]["message"]


def test_a_crash_in_native_code_shows_where(life_model: Path) -> None:
    with ServerProcess(life_model, command=with_fault("crash", 9)) as server:
        server.until_ready()
        with Crowd(server, BODIES) as crowd:
            all_are_told(server, crowd, "SIGSEGV")
        assert "faulty_run" in server.log()


def test_an_idle_engine_that_is_killed(life_model: Path) -> None:
    with ServerProcess(life_model) as server:
        server.until_ready()
        server.engine().kill()
        assert server.end() == 1
        assert "SIGKILL" in server.entries("farthing.server")[-1]["message"]


def test_an_engine_that_dies_while_it_loads(life_model: Path, tmp_path: Path) -> None:
    with ServerProcess(life_model, command=with_fault("loading", tmp_path / "no")) as server:
        server.until_listening()
        server.wait(lambda: server.status("/health") == 503)
        server.engine().kill()
        assert server.end() == 1
        (_, entry) = server.entries("farthing.server")
        assert "SIGKILL" in entry["message"]


def test_an_engine_that_hangs(life_model: Path) -> None:
    """X12."""
    times = ("--health-timeout", "0.5", "--watchdog-timeout", "2.5")
    with ServerProcess(life_model, *times, command=with_fault("hang", 7)) as server:
        server.until_ready()
        with Crowd(server, BODIES) as crowd:
            server.wait(lambda: server.status("/health") == 503)
            response = server.client.get("/health")
            assert response.json()["error"]["message"] == "the engine does not answer"
            assert server.status("/livez") == 200
            assert server.status("/metrics") == 200
            assert server.metric("farthing_healthy") == 0
            reason = "ended no step for 2.5 s (--watchdog-timeout) and was ended (SIGABRT)"
            all_are_told(server, crowd, reason, "engine_hung")
        assert "the engine has not ended a step for" in server.log()
        assert "Fatal Python error: Aborted" in server.log()
        assert "faulty_run" in server.log()
