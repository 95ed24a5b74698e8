"""A server ends: as asked, too late, at once. Everybody is told, nothing is left."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import termios
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.crowds import Crowd, alone, asked, error_of, told
from support.full_pipe import full_pipe
from support.reachable import CHAT, COMPLETIONS, Reachable, Streaming
from support.server_process import ServerProcess, serving, with_fault

SECONDS = 5.0
"""In which a server that need not wait for anybody has ended."""

BODIES = [asked(number, 300) for number in range(3)]  # more than run at a time
LONG = {**asked(0, 1900), "stream_options": {}}
SLOW = {"command": with_fault("slow", 4)}  # answers that are long enough to come into their midst
TWO = ("--max-num-seqs", "2")
FEW = ("--max-num-seqs", "6")
SLOW_TIER = pytest.mark.slow
USER = [{"role": "user", "content": "What?"}]


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=SLOW_TIER)])
def test_while_it_loads(number: int, life_model: Path, tmp_path: Path) -> None:
    """X16."""
    with ServerProcess(life_model, command=with_fault("loading", tmp_path / "no")) as server:
        server.until_listening()
        server.engine()
        server.wait(lambda: server.status("/health") == 503)
        asked_at = time.monotonic()
        server.signal(number)
        assert server.end() == 0
        assert time.monotonic() - asked_at < SECONDS
        assert "Traceback" not in server.log()


def refusals_of(server: Reachable) -> list[httpx2.Response]:
    """What a server that stops answers to new requests, on new connections."""
    with httpx2.Client(base_url=server.url) as client:
        return [
            client.post(CHAT, json={"messages": USER}),
            client.post(COMPLETIONS, json={"prompt": "a", "stream": True}),
            client.get("/health"),
            client.get("/readyz"),
            client.get("/v1/models"),
        ]


@pytest.mark.parametrize("to", ["the server", pytest.param("its process group", marks=SLOW_TIER)])
def test_what_has_begun_is_finished_and_nothing_else(
    to: str, life_model: Path, tmp_path: Path, shared_process: ServerProcess
) -> None:
    """X14; a supervisor sends the signal to all processes, of which only one may take it."""
    kept = ("--prefix-cache", str(tmp_path / "kept"))
    expected = alone(shared_process, BODIES)
    with ServerProcess(life_model, *TWO, *kept, **SLOW) as server:
        server.until_ready()
        with Crowd(server, BODIES) as crowd:
            server.wait(lambda: server.metric("vllm:num_requests_running") == 2)
            server.wait(lambda: server.metric("vllm:num_requests_waiting") == 1)
            if to == "the server":
                server.signal()
            else:
                os.killpg(server.child.pid, signal.SIGTERM)
            server.wait(lambda: server.status("/readyz") == 503)
            for response in refusals_of(server):
                assert response.status_code == 503
                assert 1 <= int(response.headers["retry-after"]) <= 60
                assert response.json()["error"]["code"] == "draining"
            assert server.status("/livez") == 200
            assert server.invariants()["open_prompts"] > 0
            assert [told(response) for response in crowd.responses()] == expected
        assert server.end() == 0
        (entry,) = [e for e in server.entries("farthing.server") if "SIGTERM" in e["message"]]
        assert "3 running or waiting requests have up to 60 s" in entry["message"]
    if to == "the server":
        with serving(life_model, *TWO, *kept) as server:
            info = server.client.get("/server_info").json()
            assert info["engine"]["restored_tokens"] > 0
            assert alone(server, BODIES) == expected
            server.invariants()


def cut_off(crowd: Crowd, longs: list[dict[str, Any]], code: str, reason: str) -> None:
    """Asserts that all were told of an early end: streams after what they had, and the others."""
    for body, response in zip(longs, crowd.responses(), strict=True):
        error = error_of(response)
        assert (error["type"], error["code"]) == ("service_unavailable", code)
        assert reason in error["message"]
        assert response.status_code == (200 if body["stream"] else 503)
        assert body["stream"] or int(response.headers["retry-after"]) >= 1


LONGS = [{**asked(number, 1900)} for number in range(6)]


def test_what_is_not_finished_in_time_is_told_so(life_model: Path) -> None:
    """X15."""
    with ServerProcess(life_model, *FEW, "--shutdown-timeout", "0.5", **SLOW) as server:
        server.until_ready()
        with Crowd(server, LONGS) as crowd:
            server.wait(lambda: server.metric("vllm:num_requests_running") == 6)
            asked_at = time.monotonic()
            server.signal()
            cut_off(crowd, LONGS, "drain_timeout", "after the 0.5 s of --shutdown-timeout")
            assert time.monotonic() - asked_at >= 0.5
        assert server.end() == 3
        assert "6 requests were not finished: cut off" in server.log()


@pytest.mark.parametrize("number", [pytest.param(signal.SIGTERM, marks=SLOW_TIER), signal.SIGINT])
def test_a_second_signal_ends_at_once(number: int, life_model: Path) -> None:
    """X15; of Ctrl-C, which a terminal sends to all processes."""
    send = os.kill if number == signal.SIGTERM else os.killpg
    with ServerProcess(life_model, *FEW, **SLOW) as server:
        server.until_ready()
        with Crowd(server, LONGS) as crowd:
            server.wait(lambda: server.metric("vllm:num_requests_running") == 6)
            send(server.child.pid, number)
            server.wait(lambda: server.status("/readyz") == 503)
            asked_at = time.monotonic()
            send(server.child.pid, number)
            name = signal.Signals(number).name
            cut_off(crowd, LONGS, "server_shutdown", f"at once ({name}, twice)")
            assert server.end() == 128 + number
            assert time.monotonic() - asked_at < SECONDS


def test_a_second_signal_ends_an_engine_that_does_not(life_model: Path) -> None:
    """It hangs: the time that it has for its prefix cache is not waited for."""
    command = with_fault("hang", 5)
    with ServerProcess(life_model, "--shutdown-timeout", "0.2", command=command) as server:
        server.until_ready()
        stream = Streaming(server, COMPLETIONS, LONG)
        assert stream.piece()
        server.signal()
        server.wait(lambda: "not finished: cut off" in server.log())
        asked_at = time.monotonic()
        server.signal()
        assert server.end() == 128 + signal.SIGTERM
        assert time.monotonic() - asked_at < SECONDS
        assert b'"error"' in stream.rest()
        stream.leave()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["SIGHUP", "SIGTERM, then SIGHUP", "the terminal is closed"])
def test_a_hangup_lets_what_has_begun_finish(
    how: str, life_model: Path, shared_process: ServerProcess
) -> None:
    """However often it comes: no number of hangups cuts an answer off."""
    expected = alone(shared_process, BODIES)
    screen, terminal = pty.openpty()

    def take_terminal() -> None:
        fcntl.ioctl(2, termios.TIOCSCTTY, 0)

    closed = how == "the terminal is closed"
    shown = {"stderr": terminal, "preexec": take_terminal} if closed else {}
    with ServerProcess(life_model, *TWO, **SLOW, **shown) as server:
        os.close(terminal)
        server.until_ready()
        with Crowd(server, BODIES) as crowd:
            server.wait(lambda: server.metric("vllm:num_requests_running") == 2)
            if how == "SIGTERM, then SIGHUP":
                server.signal()
                server.wait(lambda: server.status("/readyz") == 503)
            if closed:
                os.close(screen)
            else:
                os.killpg(server.child.pid, signal.SIGHUP)
            server.wait(lambda: server.status("/readyz") == 503)
            os.killpg(server.child.pid, signal.SIGHUP)
            assert [told(response) for response in crowd.responses()] == expected
        assert server.end() == 0
        if not closed:
            os.close(screen)
            assert f"{how[:7].rstrip(',')}: stopping; 3 running or waiting" in server.log()


@pytest.mark.slow
def test_a_hangup_that_is_ignored_from_the_start_stays_so(life_model: Path) -> None:
    """As under nohup."""

    def ignore() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    with ServerProcess(life_model, preexec=ignore) as server:
        server.until_ready()
        os.killpg(server.child.pid, signal.SIGHUP)
        assert len(alone(server, BODIES)) == len(BODIES)
        assert server.status("/readyz") == 200
        assert server.stop() == 0
        assert "SIGHUP" not in server.log()


def test_idle_connections_do_not_hold_it_up(life_model: Path) -> None:
    with ServerProcess(life_model) as server:
        server.until_ready()
        idle = [httpx2.Client(base_url=server.url) for _ in range(5)]
        assert [client.get("/livez").status_code for client in idle] == [200] * 5
        asked_at = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - asked_at < SECONDS
        for client in idle:
            client.close()


def test_at_its_end_it_says_nothing_but_its_log(each_model: Path) -> None:
    """Native code would report here what was never released."""
    with ServerProcess(each_model) as server:
        server.until_ready()
        assert server.answer(COMPLETIONS, {"prompt": "a", "max_tokens": 3})["choices"]
        assert server.stop() == 0
        assert "leaked" not in server.log()
        assert len(server.entries()) == len(server.log().splitlines()) > 2


def test_nobody_reads_what_it_says_at_its_end(each_model: Path) -> None:
    """Its stderr, and its engine's, is a pipe that is full."""
    with full_pipe() as full, ServerProcess(each_model, stderr=full) as server:
        server.until_ready()
        asked_at = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - asked_at < SECONDS


@pytest.mark.slow
def test_an_idle_engine_that_hangs_does_not_keep_it(life_model: Path) -> None:
    with ServerProcess(life_model) as server:
        server.until_ready()
        os.kill(server.engine().pid, signal.SIGSTOP)
        server.signal()
        assert server.end() == 1
        entry = server.entries("farthing.server")[-1]
        assert entry["message"] == (
            "the engine did not stop as it should: "
            "SIGKILL, which the server sent as it did not end in time"
        )
