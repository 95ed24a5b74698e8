"""A safetensors file's directory, checked against its size.

Layout: an 8-byte little-endian header length, a JSON header, then the tensors' bytes without gaps
(the format section of the safetensors README). The parser is ours because NumPy has no bfloat16,
so the package cannot hand out such tensors without torch; it is the oracle in tests.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TypeGuard

from farthing.errors import ModelFormatError
from farthing.files.json_cursor import JsonCursor
from farthing.files.reader import FileReader

MAX_HEADER = 16 << 20
"""Bytes. The format allows 100 MB; real headers take about 140 bytes a tensor."""
MAX_TENSORS = 1 << 16
MAX_DIMS = 8

_DTYPE_BITS = {
    "F64": 64, "F32": 32, "F16": 16, "BF16": 16, "C64": 64,
    "I64": 64, "I32": 32, "I16": 16, "I8": 8,
    "U64": 64, "U32": 32, "U16": 16, "U8": 8, "BOOL": 8,
    "F8_E5M2": 8, "F8_E4M3": 8, "F8_E5M2FNUZ": 8, "F8_E4M3FNUZ": 8, "F8_E8M0": 8,
    "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class SafetensorsTensor:
    """One entry of the directory."""

    name: str
    dtype: str  # the format's spelling: "F32", "BF16", ...
    shape: tuple[int, ...]
    offset: int  # in the file
    nbytes: int


@dataclass(frozen=True, slots=True)
class SafetensorsFile:
    """A parsed safetensors file; the tensors' bytes fill it from the header to the end."""

    reader: FileReader
    tensors: tuple[SafetensorsTensor, ...]
    format: str | None = None  # what wrote it, by its metadata


def read_safetensors(path: Path) -> SafetensorsFile:
    """Parses the directory of ``path``.

    Raises :class:`ModelFormatError`, naming tensor and byte, for anything the format does not
    allow, a truncated file included, and what :class:`FileReader` raises.
    """
    reader = FileReader(path)
    if reader.size < 8:
        raise ModelFormatError(
            path,
            f"the file ends after {reader.size} bytes, inside its 8-byte header length",
            field="header length",
            offset=reader.size,
        )
    length = int.from_bytes(reader.read(0, 8), "little")
    if not 2 <= length <= MAX_HEADER or length > reader.size - 8:
        raise ModelFormatError(
            path,
            f"is {length}, outside 2 to {min(MAX_HEADER, reader.size - 8)} for this file",
            field="header length",
            offset=0,
        )
    metadata: dict[str, object] = {}
    cursor = JsonCursor(path, reader.read(8, length), 8)
    tensors = tuple(_entries(cursor, 8 + length, metadata))
    _check_extents(reader, tensors, 8 + length)
    written_by = metadata.get("format")
    return SafetensorsFile(reader, tensors, written_by if isinstance(written_by, str) else None)


def _entries(
    header: JsonCursor, data: int, metadata: dict[str, object]
) -> Iterator[SafetensorsTensor]:
    count = 0
    for name, at in header.only_members():
        value = header.value()
        header.forget()
        if name == "__metadata__":
            metadata.update(value if isinstance(value, dict) else {})
            continue
        count += 1
        if count > MAX_TENSORS:
            header.fail(f"more than {MAX_TENSORS} tensors", at - header.base)
        yield _entry(header.path, name, at, value, data)


def _entry(path: Path, name: str, at: int, entry: object, data: int) -> SafetensorsTensor:
    def fail(problem: str) -> NoReturn:
        raise ModelFormatError(path, problem, field=f"tensor {name}", offset=at)

    if not isinstance(entry, dict):
        fail("its directory entry is not an object")
    dtype: object = entry.get("dtype")
    shape: object = entry.get("shape")
    extent: object = entry.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in _DTYPE_BITS:
        fail(f"unknown dtype {str(dtype)[:40]!r}")
    if not _naturals(shape) or len(shape) > MAX_DIMS:
        fail(f"its shape is not a list of at most {MAX_DIMS} sizes")
    if not _naturals(extent) or len(extent) != 2:
        fail("its data_offsets are not two byte offsets")
    begin, end = extent
    if begin > end:
        fail(f"its data_offsets are reversed ({begin} to {end})")
    bits = math.prod(shape) * _DTYPE_BITS[dtype]
    if bits % 8 or bits // 8 != end - begin:
        fail(f"{end - begin} bytes of data for {dtype} of shape {tuple(shape)}")
    return SafetensorsTensor(name, dtype, tuple(shape), data + begin, end - begin)


def _naturals(value: object) -> TypeGuard[list[int]]:
    """Whether ``value`` is a list of integers from 0 to 2^63 - 1."""
    return isinstance(value, list) and all(
        type(item) is int and 0 <= item < 1 << 63 for item in value
    )


def _check_extents(reader: FileReader, tensors: Sequence[SafetensorsTensor], data: int) -> None:
    """Every byte from ``data`` to the end of the file belongs to exactly one tensor."""
    end = data
    for tensor in sorted(tensors, key=lambda t: (t.offset, t.offset + t.nbytes)):
        if tensor.offset + tensor.nbytes > reader.size:
            problem = (
                f"{tensor.nbytes} bytes of data from byte {tensor.offset} reach past the end of "
                f"the file ({reader.size} bytes); the file is truncated or its directory is wrong"
            )
        elif tensor.offset < end:
            problem = "its data overlaps that of another tensor"
        elif tensor.offset > end:
            problem = f"{tensor.offset - end} bytes before its data belong to no tensor"
        else:
            end += tensor.nbytes
            continue
        raise ModelFormatError(
            reader.path, problem, field=f"tensor {tensor.name}", offset=tensor.offset
        )
    if end != reader.size:
        raise ModelFormatError(
            reader.path, f"{reader.size - end} bytes after the last tensor", offset=end
        )
