"""JSON objects in model files, strictly: see :mod:`farthing.files.json_cursor`."""

from __future__ import annotations

from pathlib import Path

from farthing.errors import ModelFormatError
from farthing.files.json_cursor import JsonCursor
from farthing.files.reader import FileReader
from farthing.models.checkpoint.fields import Fields

MAX_JSON = 16 << 20  # bytes; the largest index of a sharded model is a little less


def open_json(path: Path) -> JsonCursor:
    """A cursor at the start of ``path``; raises :class:`ModelFormatError` if it is too long."""
    reader = FileReader(path)
    if reader.size > MAX_JSON:
        raise ModelFormatError(
            path, f"has {reader.size} bytes, more than {MAX_JSON}", field="JSON", offset=0
        )
    return JsonCursor(path, reader.read(0, reader.size))


def read_json_object(path: Path) -> dict[str, object]:
    """The object in the file ``path``; raises :class:`ModelFormatError` if it is anything else."""
    return open_json(path).only_object()


def read_json_fields(path: Path) -> Fields:
    """The same as typed look-ups that know the byte of every key."""
    cursor = open_json(path)
    offsets: dict[str, int] = {}
    values: dict[str, object] = {}
    for key, offset in cursor.only_members():
        values[key] = cursor.value()
        offsets[key] = offset
    return Fields(path, values, offsets)
