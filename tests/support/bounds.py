"""What refusing a hostile file may cost."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SECONDS = 2.0
MEMORY = 64 << 20


def resident(field: str) -> int:
    """VmRSS or VmHWM (its peak) of this process in bytes."""
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{field}:")[1].split()[0]) * 1024


def forget_peak() -> None:
    """The peak starts again from what is resident now."""
    Path("/proc/self/clear_refs").write_text("5")


@contextmanager
def bounded() -> Iterator[None]:
    """Under 2 seconds of work and under 64 MiB above what is resident now."""
    forget_peak()
    gc.disable()  # going through what other tests have left takes most of a second
    try:
        before, start = resident("VmRSS"), time.process_time()
        yield
        took = time.process_time() - start
    finally:
        gc.enable()
    assert took < SECONDS
    assert resident("VmHWM") - before < MEMORY
