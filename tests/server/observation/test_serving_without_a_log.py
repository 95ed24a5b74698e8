"""``farthing serve`` whose log nobody reads, is closed, or does not fit the disk (fault X28)."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest

from support.command_line import COMMAND

pytestmark = pytest.mark.slow

FLAGS = ("--log-level", "debug", "--enable-log-requests", "--log-prompts")
PIPE_BYTES = 65536


@dataclass
class Running:
    """A server process."""

    process: subprocess.Popen[bytes]
    client: httpx2.Client

    def dropped(self) -> float:
        page = self.client.get("/metrics").text
        (line,) = [x for x in page.splitlines() if x.startswith("farthing_log_records_dropped")]
        return float(line.split()[1])

    def answer(self, prompt: str) -> str:
        body = {"prompt": prompt, "max_tokens": 8, "temperature": 0, "ignore_eos": True}
        response = self.client.post("/v1/completions", json=body)
        assert response.status_code == 200, response.text
        return json.dumps(response.json()["choices"])


@contextmanager
def serving(model: Path, output: int) -> Iterator[Running]:
    """A server that writes to ``output``, until it has ended by SIGTERM with 0."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [*COMMAND, "serve", str(model), "--port", str(port), *FLAGS], stdout=output, stderr=output
    )
    try:
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=20) as client:
            end = time.monotonic() + 60
            while not _is_ready(client):
                assert process.poll() is None, "it ended"
                assert time.monotonic() < end
                time.sleep(0.05)
            yield Running(process, client)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()


def _is_ready(client: httpx2.Client) -> bool:
    try:
        return client.get("/health").status_code == 200
    except httpx2.TransportError:
        return False


@pytest.mark.parametrize("log", ["full disk", "closed pipe", "unread pipe"])
def test_it_answers_all_the_same(tiny_model: Path, tmp_path: Path, log: str) -> None:
    good = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    with serving(tiny_model, good) as server:
        expected = [server.answer(f"Prompt {i}") for i in range(20)]
        assert server.dropped() == 0
    os.close(good)

    reading = -1
    if log == "full disk":
        writing = os.open("/dev/full", os.O_WRONLY)
    else:
        reading, writing = os.pipe()
    if log == "closed pipe":
        os.close(reading)
    try:
        with serving(tiny_model, writing) as server:
            os.close(writing)
            slowest = 0.0
            for i in range(400):  # more lines than a pipe holds
                began = time.monotonic()
                prompt = f"Prompt {i % 20}"
                assert server.answer(prompt) == expected[i % 20]
                slowest = max(slowest, time.monotonic() - began)
            assert slowest < 5, "nobody waits for a log"
            if log == "unread pipe":
                got = 0
                while got <= PIPE_BYTES:  # the rest comes when somebody reads
                    got += len(os.read(reading, 1 << 16))
                assert server.dropped() == 0
            else:
                assert server.dropped() >= 3 * 400
    finally:
        if log == "unread pipe":
            os.close(reading)
