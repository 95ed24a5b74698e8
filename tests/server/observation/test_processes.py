"""What processes use, read from a /proc that is here and from one of files."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from farthing.server.observation.processes import process_usage


def written(root: Path, stat: str, status: str) -> Path:
    folder = root / "proc" / "42"
    folder.mkdir(parents=True)
    (folder / "stat").write_text(stat)
    (folder / "status").write_text(status)
    return root


def test_it_is_read_right_whatever_the_process_is_called(tmp_path: Path) -> None:
    """The name in the middle may look like the rest of the line."""
    stat = "42 (odd) S 1 (x) S 1 42 42 0 -1 4194304 111 5 222 6 1500 250 7 8 20 0 9 0 100 1 2 3"
    status = "Name:\todd\nRssAnon:\t     400 kB\nRssFile:\t  50 kB\nVmSwap:\t       3 kB\n"
    usage = process_usage(42, written(tmp_path, stat, status))
    assert usage is not None
    assert usage.memory == {"anonymous": 400 << 10, "file": 50 << 10, "swap": 3 << 10}
    assert usage.page_faults == {"minor": 111, "major": 222}
    ticks = os.sysconf("SC_CLK_TCK")
    assert usage.cpu_seconds == {"user": 1500 / ticks, "system": 250 / ticks}
    assert usage.threads == 9


def test_our_own_grows_when_we_touch_memory() -> None:
    before = process_usage(os.getpid())
    assert before is not None
    region = bytearray(b"x" * (64 << 20))
    after = process_usage(os.getpid())
    assert after is not None
    assert after.memory["anonymous"] >= before.memory["anonymous"] + len(region) - (4 << 20)
    assert after.page_faults["minor"] > before.page_faults["minor"]
    own = resource.getrusage(resource.RUSAGE_SELF)
    assert abs(after.cpu_seconds["user"] - own.ru_utime) < 1


@pytest.mark.parametrize("pid", [0, 2**30])
def test_a_process_that_is_not_there_is_none(pid: int) -> None:
    assert process_usage(pid) is None
