"""``farthing serve`` whose log nobody reads, is closed, or does not fit the disk (fault X28)."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from support.reachable import COMPLETIONS
from support.server_process import ServerProcess, serving

pytestmark = pytest.mark.slow

FLAGS = ("--log-level", "debug", "--enable-log-requests", "--log-prompts")
PIPE_BYTES = 65536
DROPPED = "farthing_log_records_dropped_total"


def answer(server: ServerProcess, prompt: str) -> str:
    body = {"prompt": prompt, "max_tokens": 8, "temperature": 0, "ignore_eos": True}
    return json.dumps(server.answer(COMPLETIONS, body)["choices"])


@pytest.mark.parametrize("log", ["full disk", "closed pipe", "unread pipe"])
def test_it_answers_all_the_same(tiny_model: Path, log: str) -> None:
    with serving(tiny_model, *FLAGS) as server:
        expected = [answer(server, f"Prompt {i}") for i in range(20)]
        assert server.metric(DROPPED) == 0

    reading = -1
    if log == "full disk":
        writing = os.open("/dev/full", os.O_WRONLY)
    else:
        reading, writing = os.pipe()
    if log == "closed pipe":
        os.close(reading)
    try:
        with serving(tiny_model, *FLAGS, stdout=writing, stderr=writing) as server:
            os.close(writing)
            slowest = 0.0
            for i in range(400):  # more lines than a pipe holds
                began = time.monotonic()
                assert answer(server, f"Prompt {i % 20}") == expected[i % 20]
                slowest = max(slowest, time.monotonic() - began)
            assert slowest < 5, "nobody waits for a log"
            if log == "unread pipe":
                got = 0
                while got <= PIPE_BYTES:  # the rest comes when somebody reads
                    got += len(os.read(reading, 1 << 16))
                assert server.metric(DROPPED) == 0
            else:
                assert server.metric(DROPPED) >= 3 * 400
    finally:
        if log == "unread pipe":
            os.close(reading)
