"""Memory, page faults and CPU time of processes, as Linux tells them."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

_MEMORY = {"anonymous": "RssAnon", "file": "RssFile", "swap": "VmSwap"}


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """``memory``: bytes by kind, swapped ones too, since what is swapped out is not free."""

    memory: dict[str, int]
    page_faults: dict[str, int]
    cpu_seconds: dict[str, float]
    threads: int


def process_usage(pid: int, root: Path = Path("/")) -> ProcessUsage | None:
    """What a process uses; None if it is gone or the system does not tell."""
    folder = root / "proc" / str(pid)
    try:
        stat = (folder / "stat").read_text()
        status = (folder / "status").read_text(errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()  # from the third on, "state"
    ticks = os.sysconf("SC_CLK_TCK")
    return ProcessUsage(
        memory={kind: _bytes(status, name) for kind, name in _MEMORY.items()},
        page_faults={"minor": int(fields[7]), "major": int(fields[9])},
        cpu_seconds={"user": int(fields[11]) / ticks, "system": int(fields[12]) / ticks},
        threads=int(fields[17]),
    )


def _bytes(status: str, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB$", status, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0
