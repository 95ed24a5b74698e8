"""A GGUF file's structure: version, metadata and tensor directory, all checked against its size.

Layout: the GGUF specification (ggml ``docs/gguf.md``). The parser is ours, see
``docs/decisions/gguf-parser.md``; the ``gguf`` package is its oracle in tests.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from farthing.errors import ModelFormatError
from farthing.files.reader import FileReader
from farthing.models.checkpoint.gguf_metadata import (
    MAX_KEYS,
    MAX_TENSORS,
    Cursor,
    Entry,
    ValueType,
    read_metadata,
)
from farthing.quantization import SCHEMES_BY_GGUF_TYPE, Scheme

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_ALIGNMENT = 1 << 24
MAX_DIMS = 4
_HEADER = 24  # magic, version, tensor count, key count
_SMALLEST_PAIR = 14  # length, one byte of key, type, one byte of value
_SMALLEST_TENSOR = 24  # length, no name, number of dimensions, type, offset


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """One entry of the tensor directory."""

    name: str
    shape: tuple[int, ...]  # row-major, so the file's dimensions reversed
    scheme: Scheme
    offset: int  # in the file
    nbytes: int
    entry_offset: int  # of the directory entry


@dataclass(frozen=True, slots=True)
class GgufFile:
    """A parsed GGUF file. No tensor has been read; each lies inside the file and alone."""

    reader: FileReader
    version: int
    alignment: int
    metadata: Mapping[str, Entry]
    tensors: tuple[GgufTensor, ...]
    data_offset: int

    @property
    def path(self) -> Path:
        """The file."""
        return self.reader.path


def read_gguf(path: Path) -> GgufFile:
    """Parses ``path``.

    Raises :class:`ModelFormatError`, naming field and byte, for anything the format does not allow,
    a file shorter than its tensors included, and what :class:`FileReader` raises.
    """
    reader = FileReader(path)
    version = _read_version(reader)
    cursor = Cursor(reader)
    cursor.u64("header")
    tensor_count = _count(cursor, "tensor count", "tensors", _SMALLEST_TENSOR, MAX_TENSORS)
    key_count = _count(cursor, "key count", "key-value pairs", _SMALLEST_PAIR, MAX_KEYS)
    metadata = read_metadata(cursor, key_count)
    alignment = _alignment(reader, metadata)
    relative = [_read_tensor(cursor, index, alignment) for index in range(tensor_count)]
    _check_unique(reader, relative)
    data_offset = -(-cursor.offset // alignment) * alignment
    tensors = tuple(
        GgufTensor(t.name, t.shape, t.scheme, data_offset + t.offset, t.nbytes, t.entry_offset)
        for t in relative
    )
    _check_extents(reader, tensors)
    return GgufFile(reader, version, alignment, metadata, tensors, data_offset)


def _read_version(reader: FileReader) -> int:
    head = reader.read(0, min(reader.size, 8))
    if head[:4] != MAGIC[: len(head)] or not head:
        problem = "the file is empty" if not head else f"starts with {head[:4]!r}, not {MAGIC!r}"
        raise ModelFormatError(reader.path, problem, field="magic", offset=0)
    if reader.size < _HEADER:
        raise ModelFormatError(
            reader.path,
            f"the file ends after {reader.size} bytes, inside its {_HEADER}-byte header",
            field="header",
            offset=reader.size,
        )
    version = int.from_bytes(head[4:8], "little")
    if version in VERSIONS:
        return version
    problem = f"GGUF version {version} is not supported; versions 2 and 3 are"
    if int.from_bytes(head[4:8], "big") in VERSIONS:
        problem = "the file is big-endian; convert it to little-endian"
    raise ModelFormatError(reader.path, problem, field="version", offset=4)


def _count(cursor: Cursor, field: str, things: str, smallest: int, most: int) -> int:
    start = cursor.offset
    count = cursor.u64(field)
    if count * smallest > cursor.left:
        cursor.fail(f"{count} {things} cannot fit in the {cursor.left} bytes left", field, start)
    if count > most:
        cursor.fail(f"{count} {things}, more than {most}", field, start)
    return count


def _alignment(reader: FileReader, metadata: Mapping[str, Entry]) -> int:
    key = "general.alignment"
    entry = metadata.get(key)
    if entry is None:
        return DEFAULT_ALIGNMENT
    value = entry.value
    if entry.kind is not ValueType.UINT32 or not isinstance(value, int):
        problem = f"must be of type uint32, not {entry.kind.name.lower()}"
        raise ModelFormatError(reader.path, problem, field=key, offset=entry.offset)
    if not 8 <= value <= MAX_ALIGNMENT or value & (value - 1):
        problem = f"is {value}; it must be a power of two from 8 to {MAX_ALIGNMENT}"
        raise ModelFormatError(reader.path, problem, field=key, offset=entry.offset)
    return value


def _read_tensor(cursor: Cursor, index: int, alignment: int) -> GgufTensor:
    """A directory entry; its ``offset`` still counts from the start of the data."""
    start = cursor.offset
    name = cursor.string(f"name of tensor {index}")
    if not name:
        cursor.fail("an empty name", f"tensor {index}", start)
    field = f"tensor {name}"
    num_dims = cursor.u32(field)
    if num_dims > MAX_DIMS:
        cursor.fail(f"{num_dims} dimensions, more than {MAX_DIMS}", field, start)
    shape = tuple(cursor.u64(field) for _ in range(num_dims))[::-1]
    number = cursor.u32(field)
    offset = cursor.u64(field)
    scheme = SCHEMES_BY_GGUF_TYPE.get(number)
    if scheme is None:
        cursor.fail(f"unknown data type {number}", field, start)
    cols = shape[-1] if shape else 1
    if cols % scheme.block_cols:
        cursor.fail(
            f"rows of {cols} elements are not a multiple of the {scheme.block_cols} of a "
            f"{scheme.name} block",
            field,
            start,
        )
    if offset % alignment:
        cursor.fail(f"data offset {offset} is not a multiple of {alignment}", field, start)
    nbytes = math.prod(shape) // scheme.block_cols * scheme.block_bytes
    return GgufTensor(name, shape, scheme, offset, nbytes, start)


def _check_unique(reader: FileReader, tensors: list[GgufTensor]) -> None:
    seen: set[str] = set()
    for tensor in tensors:
        if tensor.name in seen:
            raise ModelFormatError(
                reader.path,
                "a duplicate tensor name",
                field=f"tensor {tensor.name}",
                offset=tensor.entry_offset,
            )
        seen.add(tensor.name)


def _check_extents(reader: FileReader, tensors: tuple[GgufTensor, ...]) -> None:
    for tensor in tensors:
        end = tensor.offset + tensor.nbytes
        if end > reader.size:
            raise ModelFormatError(
                reader.path,
                f"{tensor.nbytes} bytes of data from byte {tensor.offset} reach {end - reader.size}"
                f" bytes past the end of the file ({reader.size} bytes); the file is truncated or "
                "its directory is wrong",
                field=f"tensor {tensor.name}",
                offset=tensor.entry_offset,
            )
    stored = sorted((t for t in tensors if t.nbytes), key=lambda t: t.offset)
    for before, after in itertools.pairwise(stored):
        if after.offset < before.offset + before.nbytes:
            raise ModelFormatError(
                reader.path,
                f"data overlaps that of tensor {before.name}",
                field=f"tensor {after.name}",
                offset=after.entry_offset,
            )
