"""Whether the bytes of a packed directory are those that were written."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from farthing import machine
from farthing.errors import InvalidParameterError, ModelFormatError
from farthing.files.reader import FileReader
from farthing.models.checkpoint.huggingface import read_shards
from farthing.models.checkpoint.packed_manifest import Manifest
from farthing.packing.checksums import checksum_of_part


@dataclass(frozen=True, slots=True)
class Verified:
    """What was read and found to be as it was written."""

    tensors: int
    files: int
    nbytes: int  # of both


@dataclass(frozen=True, slots=True)
class _Part:
    """Bytes that have a checksum of their own."""

    field: str | None  # None: a whole file
    reader: FileReader
    offset: int
    nbytes: int
    expected: str


def verify_packed(
    path: Path, manifest: Manifest, progress: Callable[[int, int], None] = lambda done, total: None
) -> Verified:
    """Reads the packed directory ``path`` whole and compares it with the checksums it came with.

    ``progress`` is told bytes read, and of all. Raises :class:`ModelFormatError` naming the first
    tensor or file that differs and how many more do, and :class:`InvalidParameterError` for a
    directory that came without checksums.
    """
    sums = manifest.checksums
    if sums is None:
        raise InvalidParameterError(
            f"{path}: was packed before checksums were written; pack it again to have them"
        )
    parts = [
        _Part(None, reader, 0, reader.size, expected)
        for name, expected in sums.files.items()
        for reader in (FileReader(path / name),)
    ]
    files = len(parts)
    parts += [
        _Part(f"tensor {e.name}", reader, e.offset, e.nbytes, sums.tensors[e.name])
        for reader, e in read_shards(path)
    ]
    total, done = sum(part.nbytes for part in parts), 0
    wrong = []
    with ThreadPoolExecutor(machine.default_threads()) as threads:
        for part, found in zip(parts, threads.map(_checksum, parts), strict=True):
            if found != part.expected:
                wrong.append((part, found))
            done += part.nbytes
            progress(done, total)
    if wrong:
        part, found = wrong[0]
        more = f", and {len(wrong) - 1} more differ" if len(wrong) > 1 else ""
        raise ModelFormatError(
            part.reader.path,
            f"is not as it was written: its checksum is {found}, not {part.expected}{more}; pack "
            "the model again with 'farthing quantize'",
            field=part.field,
            offset=None if part.field is None else part.offset,
        )
    return Verified(len(parts) - files, files, total)


def _checksum(part: _Part) -> str:
    return checksum_of_part(part.reader, part.offset, part.nbytes)
