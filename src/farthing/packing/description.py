"""What of the source goes into a packed directory beside its weights."""

from __future__ import annotations

import struct
from pathlib import Path

from farthing.errors import ModelFormatError
from farthing.files.reader import FileReader
from farthing.models.checkpoint.gguf_metadata import Cursor, read_metadata
from farthing.models.checkpoint.packed_manifest import METADATA

_HUGGING_FACE = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
)
_TERMS = ("LICENSE", "LICENSE.*", "LICENCE", "LICENCE.*", "NOTICE", "NOTICE.*", "USE_POLICY*")
_MOST = 256 << 20  # bytes of a file or of metadata; the largest tokenizers have a tenth


def description_files(source: Path) -> dict[str, bytes]:
    """Small files by name: a GGUF file's metadata, or a directory's files but for the weights.

    Unchanged, so that a packed model is described by whoever described its source. The terms it
    comes under go with it. Raises :class:`ModelFormatError` for files of impossible size.
    """
    if not source.is_dir():
        return {METADATA: _metadata(source)}
    names = {name for name in _HUGGING_FACE if (source / name).is_file()}
    for pattern in _TERMS:
        names |= {path.name for path in source.glob(pattern) if path.is_file()}
    return {name: _whole(source / name) for name in sorted(names)}


def _whole(path: Path) -> bytes:
    reader = FileReader(path)
    if reader.size > _MOST:
        raise ModelFormatError(path, f"has {reader.size} bytes, more than {_MOST}")
    return reader.read(0, reader.size)


def _metadata(path: Path) -> bytes:
    """A GGUF file of the same version and keys, and no tensors."""
    reader = FileReader(path)
    head, version = reader.read(0, 4), reader.read(4, 4)
    cursor = Cursor(reader)
    for _ in range(2):
        cursor.u64("header")  # magic and version; tensor count
    count = cursor.u64("key count")
    start = cursor.offset
    read_metadata(cursor, count)
    if cursor.offset - start > _MOST:
        raise ModelFormatError(
            path, f"has {cursor.offset - start} bytes of metadata, more than {_MOST}"
        )
    pairs = reader.read(start, cursor.offset - start)
    return head + version + struct.pack("<QQ", 0, count) + pairs
