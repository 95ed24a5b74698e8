"""Packing runs that are stopped, and what they leave."""

from __future__ import annotations

from pathlib import Path

from farthing.packing import PackOptions
from farthing.packing.quantize import PackProgress

OPTIONS = PackOptions("w4g32", "absmax", num_threads=2, shard_bytes=30_000)


class Stopped(BaseException):
    """Ends a run as Ctrl-C does."""


def stop_after(count: int) -> PackProgress:
    """Stops when ``count`` tensors of this run are written."""
    calls = 0

    def advance(done: int, total: int) -> None:
        nonlocal calls
        calls += 1
        if calls > count:
            raise Stopped

    return PackProgress(bytes=advance)


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def partial_of(target: Path) -> Path:
    return target.with_name("packed.partial")
