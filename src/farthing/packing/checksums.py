"""CRC-32, as journal and manifest of a packed directory have it: eight hexadecimal digits."""

from __future__ import annotations

import zlib

import numpy as np

from farthing.files.reader import FileReader

_CHUNK = 4 << 20  # bytes of a file looked at at a time


def checksum(data: bytes | memoryview) -> str:
    """Of ``data``."""
    return _written(zlib.crc32(data))


def checksum_of_part(reader: FileReader, offset: int, nbytes: int) -> str:
    """Of ``nbytes`` bytes of a file; raises :class:`ModelFormatError` if it ends before them."""
    total = 0
    buffer = np.empty(min(_CHUNK, nbytes), np.uint8)
    for start in range(0, nbytes, _CHUNK):
        data = buffer[: min(_CHUNK, nbytes - start)]
        reader.read_into(offset + start, data)
        total = zlib.crc32(data.data, total)
    return _written(total)


def _written(crc: int) -> str:
    return f"{crc:08x}"
