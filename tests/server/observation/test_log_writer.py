"""Who logs never waits and never fails, whatever becomes of the lines."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from farthing.server.observation.log_writer import LineWriter

PIPE_BYTES = 65536
"""What a pipe holds on Linux before its writer waits."""


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    for fd in (reading, writing):
        with contextlib.suppress(OSError):
            os.close(fd)


def read_all(fd: int, until: bytes) -> bytes:
    """What comes until ``until`` is the end of it."""
    got = b""
    while not got.endswith(until):
        assert select.select([fd], [], [], 10)[0], got[-200:]
        got += os.read(fd, 1 << 20)
    return got


def test_lines_come_in_order(pipe: tuple[int, int]) -> None:
    writer = LineWriter(pipe[1])
    for i in range(1000):
        writer.put(f"line {i}")
    writer.close(10)
    assert os.read(pipe[0], 1 << 20).decode() == "".join(f"line {i}\n" for i in range(1000))
    assert writer.dropped == 0


def test_what_is_no_text_is_written_all_the_same(pipe: tuple[int, int]) -> None:
    writer = LineWriter(pipe[1])
    writer.put("a\ud800b")
    writer.close(10)
    assert os.read(pipe[0], 100) == b"a?b\n"


def test_a_pipe_nobody_reads_costs_lines_and_no_time(pipe: tuple[int, int]) -> None:
    """More than the pipe and the queue hold: the rest is dropped, counted, and said."""
    writer = LineWriter(pipe[1], max_lines=100, on_dropped="{} lost".format)
    line = "x" * 999
    began = time.monotonic()
    for _ in range(1000):
        writer.put(line)
    assert time.monotonic() - began < 1
    dropped = writer.dropped
    most = PIPE_BYTES // 1000 + 100 + 1
    assert 1000 - most <= dropped < 1000
    reader = threading.Thread(target=lambda: got.append(read_all(pipe[0], b"after\n")))
    got: list[bytes] = []
    reader.start()  # it is back
    assert writer.flush(10)
    writer.put("after")
    reader.join(10)
    lines = got[0].decode().splitlines()
    assert sum(int(each.split()[0]) for each in lines if each.endswith("lost")) == dropped
    assert lines.count(line) == 1000 - dropped
    assert writer.dropped == dropped
    writer.close()


def test_waiting_lines_are_bounded_in_bytes(pipe: tuple[int, int]) -> None:
    writer = LineWriter(pipe[1], max_bytes=200_000)
    for _ in range(100):
        writer.put("x" * 9_999)
    written_or_waiting = (100 - writer.dropped) * 10_000
    assert written_or_waiting + 10_000 >= 200_000
    assert written_or_waiting <= 200_000 + PIPE_BYTES + 10_000
    os.close(pipe[0])
    writer.close()


def test_closing_does_not_wait_for_a_reader_that_never_comes(pipe: tuple[int, int]) -> None:
    writer = LineWriter(pipe[1])
    for _ in range(200):
        writer.put("x" * 999)
    began = time.monotonic()
    assert not writer.flush(0.1)
    writer.close(0.2)
    assert 0.3 <= time.monotonic() - began < 2
    os.close(pipe[0])  # lets the thread go


def test_a_closed_pipe_is_survived(pipe: tuple[int, int]) -> None:
    os.close(pipe[0])
    writer = LineWriter(pipe[1])
    for _ in range(50):
        writer.put("x")
    writer.close(10)
    assert writer.dropped == 50


def test_a_closed_descriptor_is_survived() -> None:
    reading, writing = os.pipe()
    os.close(writing)
    os.close(reading)
    writer = LineWriter(writing)
    writer.put("x")
    writer.close(10)
    assert writer.dropped == 1


def test_a_full_disk_is_survived() -> None:
    fd = os.open("/dev/full", os.O_WRONLY)
    try:
        writer = LineWriter(fd)
        for _ in range(50):
            writer.put("x")
        writer.close(10)
        assert writer.dropped == 50
    finally:
        os.close(fd)


def test_a_disk_that_has_room_again_is_written_to_again(tmp_path: Path) -> None:
    """The descriptor stays the same; what is behind it is exchanged under it."""
    path = tmp_path / "log"
    fd = os.open("/dev/full", os.O_WRONLY)
    try:
        writer = LineWriter(fd, on_dropped="{} lost".format)
        writer.put("one")
        writer.put("two")
        assert writer.flush(10)
        room = os.open(path, os.O_WRONLY | os.O_CREAT)
        os.dup2(room, fd)
        os.close(room)
        writer.put("three")
        writer.close(10)
    finally:
        os.close(fd)
    assert path.read_text() == "three\n2 lost\n"


def test_a_line_that_was_torn_does_not_swallow_the_next(tmp_path: Path) -> None:
    """The file may grow to 10 bytes: the end of the second line does not fit."""
    script = """
import os, resource, signal, sys
from farthing.server.observation.log_writer import LineWriter
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
resource.setrlimit(resource.RLIMIT_FSIZE, (10, resource.RLIM_INFINITY))
writer = LineWriter(fd, on_dropped="{} lost".format)
writer.put("first")
writer.put("second")
writer.flush(10)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
writer.put("third")
writer.close(10)
"""
    path = tmp_path / "log"
    subprocess.run([sys.executable, "-c", script, str(path)], check=True, timeout=60)
    assert path.read_text() == "first\nseco\nthird\n1 lost\n"


def test_a_pipe_that_somebody_made_non_blocking_loses_nothing(pipe: tuple[int, int]) -> None:
    os.set_blocking(pipe[1], False)
    writer = LineWriter(pipe[1])
    for _ in range(300):
        writer.put("y" * 999)
    writer.put("last")
    got = read_all(pipe[0], b"last\n")
    writer.close(10)
    assert len(got) == 300 * 1000 + 5
    assert writer.dropped == 0


def test_many_threads_may_log(pipe: tuple[int, int]) -> None:
    writer = LineWriter(pipe[1])

    def log(name: int) -> None:
        for i in range(200):
            writer.put(f"{name} {i}")

    threads = [threading.Thread(target=log, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.put("last")
    lines = read_all(pipe[0], b"last\n").decode().splitlines()[:-1]
    writer.close(10)
    for name in range(8):
        own = [line for line in lines if line.startswith(f"{name} ")]
        assert own == [f"{name} {i}" for i in range(200)]


def test_what_comes_after_the_end_is_dropped_and_counted(pipe: tuple[int, int]) -> None:
    writer = LineWriter(pipe[1])
    writer.put("before")
    writer.close(10)
    writer.put("after")
    assert writer.dropped == 1
    assert os.read(pipe[0], 100) == b"before\n"
