"""The key-value part of a GGUF file, walked without trusting a number in it.

Layout: the GGUF specification (ggml ``docs/gguf.md``), versions 2 and 3. Lengths and counts are
compared with the bytes that are left before anything is allocated, and long arrays are stepped over
and decoded only when somebody reads them, so a hostile file costs little memory and little time.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Any, NoReturn, overload

import numpy as np

from farthing.errors import ModelFormatError
from farthing.files.reader import FileReader

WINDOW = 1 << 20  # bytes read at a time
MAX_STRING = 1 << 20  # bytes; chat templates and licences are a few tens of thousands
MAX_ARRAY = 1 << 22  # elements; the longest known is half a million merges
MAX_STRINGS = 32 << 20  # bytes of an array of strings; the merges of Gemma take a third
MAX_RETAINED = 8 << 20  # bytes of keys, names and strings kept from one file
MAX_KEYS = 1 << 14
MAX_TENSORS = 1 << 16

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


class ValueType(IntEnum):
    """Type numbers of metadata values."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    UINT32 = 4
    INT32 = 5
    FLOAT32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    UINT64 = 10
    INT64 = 11
    FLOAT64 = 12


_KINDS = frozenset(int(kind) for kind in ValueType)
_NUMPY: dict[ValueType, np.dtype[Any]] = {
    ValueType.UINT8: np.dtype("<u1"),
    ValueType.INT8: np.dtype("<i1"),
    ValueType.UINT16: np.dtype("<u2"),
    ValueType.INT16: np.dtype("<i2"),
    ValueType.UINT32: np.dtype("<u4"),
    ValueType.INT32: np.dtype("<i4"),
    ValueType.FLOAT32: np.dtype("<f4"),
    ValueType.BOOL: np.dtype("<u1"),
    ValueType.UINT64: np.dtype("<u8"),
    ValueType.INT64: np.dtype("<i8"),
    ValueType.FLOAT64: np.dtype("<f8"),
}
_SCALARS = {
    ValueType.UINT8: struct.Struct("<B"),
    ValueType.INT8: struct.Struct("<b"),
    ValueType.UINT16: struct.Struct("<H"),
    ValueType.INT16: struct.Struct("<h"),
    ValueType.UINT32: _U32,
    ValueType.INT32: struct.Struct("<i"),
    ValueType.FLOAT32: struct.Struct("<f"),
    ValueType.BOOL: struct.Struct("<B"),
    ValueType.UINT64: _U64,
    ValueType.INT64: struct.Struct("<q"),
    ValueType.FLOAT64: struct.Struct("<d"),
}


class StringArray(Sequence[str]):
    """An array of strings in the file, decoded when first read and kept from then on."""

    def __init__(self, reader: FileReader, key: str, offset: int, count: int, nbytes: int) -> None:
        self._reader = reader
        self._key = key
        self._offset = offset
        self._count = count
        self._nbytes = nbytes
        self._strings: list[str] | None = None

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        return self._decoded()[index]

    def __iter__(self) -> Iterator[str]:
        return iter(self._decoded())

    def _decoded(self) -> list[str]:
        if self._strings is None:
            self._strings = self._decode()
        return self._strings

    def _decode(self) -> list[str]:
        raw = self._reader.read(self._offset, self._nbytes)
        strings: list[str] = []
        append, length = strings.append, _U64.unpack_from
        at = 0
        try:
            for _ in range(self._count):
                end = at + 8 + length(raw, at)[0]
                append(str(raw[at + 8 : end], "utf-8"))
                at = end
        except UnicodeDecodeError as error:
            _not_utf8(self._reader, f"{self._key}[{len(strings)}]", self._offset + at, error)
        except (struct.error, OverflowError):
            at = -1
        if at != self._nbytes:
            raise ModelFormatError(
                self._reader.path, "changed after it was opened", field=self._key
            )
        return strings


class NumberArray:
    """An array of numbers or booleans in the file, read when asked for."""

    def __init__(
        self, reader: FileReader, key: str, offset: int, count: int, kind: ValueType
    ) -> None:
        self.kind = kind
        self._reader = reader
        self._key = key
        self._offset = offset
        self._count = count

    def __len__(self) -> int:
        return self._count

    def integers(self) -> list[int]:
        """The elements, rounded towards zero if they are floats."""
        return [int(value) for value in self._read().tolist()]

    def floats(self) -> list[float]:
        """The elements as floats."""
        return [float(value) for value in self._read().tolist()]

    def _read(self) -> np.ndarray[tuple[Any, ...], np.dtype[Any]]:
        dtype = _NUMPY[self.kind]
        raw = self._reader.read(self._offset, self._count * dtype.itemsize)
        return np.frombuffer(raw, dtype)


Value = int | float | bool | str | StringArray | NumberArray


@dataclass(frozen=True, slots=True)
class Entry:
    """One metadata value, its type and the byte at which its key starts."""

    kind: ValueType
    value: Value
    offset: int


class Cursor:
    """Walks forward through a file, one window of its bytes in memory."""

    def __init__(self, reader: FileReader) -> None:
        self._reader = reader
        self._window = b""
        self._base = 0  # offset in the file of the window's first byte
        self._at = 0  # next byte, from the window's first
        self._retained = 0

    @property
    def offset(self) -> int:
        """The file offset of the next byte."""
        return self._base + self._at

    @property
    def left(self) -> int:
        """Bytes from the next one to the end of the file."""
        return self._reader.size - self.offset

    def fail(self, problem: str, field: str, offset: int | None = None) -> NoReturn:
        """Raises the error for ``field`` at ``offset``, or where the cursor is."""
        raise ModelFormatError(
            self._reader.path,
            problem,
            field=field,
            offset=self.offset if offset is None else offset,
        )

    def unpack(self, form: struct.Struct, field: str) -> int | float:
        """The number at the cursor, which moves past it."""
        self._hold(form.size, field)
        value: int | float = form.unpack_from(self._window, self._at)[0]
        self._at += form.size
        return value

    def u32(self, field: str) -> int:
        """The unsigned 32-bit integer at the cursor, which moves past it."""
        return int(self.unpack(_U32, field))

    def u64(self, field: str) -> int:
        """The unsigned 64-bit integer at the cursor, which moves past it."""
        return int(self.unpack(_U64, field))

    def string(self, field: str) -> str:
        """The length-prefixed string at the cursor, which moves past it."""
        start = self.offset
        length = self.u64(field)
        if length > self.left:
            self.fail(f"a string of {length} bytes with {self.left} left in the file", field, start)
        if length > MAX_STRING:
            self.fail(f"a string of {length} bytes, more than {MAX_STRING}", field, start)
        self._retained += length
        if self._retained > MAX_RETAINED:
            self.fail(f"more than {MAX_RETAINED} bytes of names and strings", field, start)
        self._hold(length, field)
        raw = self._window[self._at : self._at + length]
        try:
            text = str(raw, "utf-8")
        except UnicodeDecodeError as error:
            _not_utf8(self._reader, field, start, error)
        self._at += length
        return text

    def array(self, key: str) -> StringArray | NumberArray:
        """The array at the cursor, which steps over its elements."""
        start = self.offset
        number = self.u32(key)
        count = self.u64(key)
        if number == ValueType.ARRAY:
            self.fail("an array of arrays, which GGUF readers do not support", key, start)
        if number not in _KINDS:
            self.fail(f"an array of unknown type {number}", key, start)
        kind = ValueType(number)
        itemsize = 8 if kind is ValueType.STRING else _NUMPY[kind].itemsize
        if count * itemsize > self.left:
            self.fail(f"an array of {count} elements with {self.left} bytes left", key, start)
        if count > MAX_ARRAY:
            self.fail(f"an array of {count} elements, more than {MAX_ARRAY}", key, start)
        data = self.offset
        if kind is ValueType.STRING:
            self._skip_strings(count, key)
            if self.offset - data > MAX_STRINGS:
                self.fail(f"{self.offset - data} bytes of strings, over {MAX_STRINGS}", key, start)
            return StringArray(self._reader, key, data, count, self.offset - data)
        self._at += count * itemsize
        return NumberArray(self._reader, key, data, count, kind)

    def _skip_strings(self, count: int, key: str) -> None:
        length = _U64.unpack_from
        size = self._reader.size
        self._hold(0, key)
        window, at = self._window, self._at
        end = len(window)
        for index in range(count):
            if at + 8 > end:
                self._at = at
                self._hold(8, f"{key}[{index}]")
                window, at = self._window, self._at
                end = len(window)
            following = at + 8 + length(window, at)[0]
            if following > end and self._base + following > size:
                self._at = at
                self.fail(
                    f"a string of {following - at - 8} bytes with {self.left - 8} left in the file",
                    f"{key}[{index}]",
                )
            at = following
        self._at = at

    def _hold(self, nbytes: int, field: str) -> None:
        """Makes the next ``nbytes`` bytes part of the window."""
        if self._at + nbytes <= len(self._window):
            return
        if nbytes > self.left:
            self.fail(f"the file ends {nbytes - max(self.left, 0)} bytes too early", field)
        self._base, self._at = self.offset, 0
        self._window = self._reader.read(self._base, min(max(nbytes, WINDOW), self.left))


def read_metadata(cursor: Cursor, count: int) -> Mapping[str, Entry]:
    """``count`` key-value pairs from the cursor on; raises :class:`ModelFormatError`."""
    entries: dict[str, Entry] = {}
    for index in range(count):
        start = cursor.offset
        key = cursor.string(f"key {index}")
        if not key:
            cursor.fail("an empty key", f"key {index}", start)
        if key in entries:
            cursor.fail("a duplicate key", key, start)
        number = cursor.u32(key)
        if number not in _KINDS:
            cursor.fail(f"a value of unknown type {number}", key, start)
        kind = ValueType(number)
        entries[key] = Entry(kind, _value(cursor, kind, key), start)
    return MappingProxyType(entries)


def _value(cursor: Cursor, kind: ValueType, key: str) -> Value:
    if kind is ValueType.STRING:
        return cursor.string(key)
    if kind is ValueType.ARRAY:
        return cursor.array(key)
    start = cursor.offset
    number = cursor.unpack(_SCALARS[kind], key)
    if kind is ValueType.BOOL:
        if number not in (0, 1):
            cursor.fail(f"a boolean of {number}", key, start)
        return bool(number)
    return number


def _not_utf8(reader: FileReader, field: str, offset: int, error: UnicodeDecodeError) -> NoReturn:
    raise ModelFormatError(
        reader.path, f"a string that is not UTF-8 ({error.reason})", field=field, offset=offset
    ) from None
