"""Lines of a batch's input, read one at a time whatever their number and length."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from farthing.openai_protocol.json_body import MAX_BODY

_PIECE = 1 << 20
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Line:
    """A line that is not blank. ``raw`` is None where it is longer than ``MAX_BODY`` bytes.

    ``name`` is the same in every run over the same file: it comes of number and content.
    """

    number: int  # from 1, blank lines counted
    raw: bytes | None
    name: str


def read_lines(path: Path) -> Iterator[Line]:
    """The lines of a file. Never has more than one of them in memory, and no more than its limit.

    A byte-order mark at the beginning of the file is no part of its first line.
    """
    with path.open("rb") as file:
        if file.read(len(_BOM)) != _BOM:
            file.seek(0)
        number = 0
        while raw := file.readline(MAX_BODY + 2):  # room for the line break
            number += 1
            content = raw.rstrip(b"\r\n")
            digest = hashlib.blake2b(b"%d:" % number, digest_size=8)
            if len(content) > MAX_BODY:
                digest.update(raw)
                _pass_over(file, raw)
                yield Line(number, None, f"batch_req_{digest.hexdigest()}")
            elif content.strip(b" \t"):
                digest.update(content)
                yield Line(number, content, f"batch_req_{digest.hexdigest()}")


def count_lines(path: Path) -> int:
    """How many lines :func:`read_lines` gives."""
    return sum(1 for _ in read_lines(path))


def _pass_over(file: BinaryIO, read: bytes) -> None:
    """Moves past the rest of a line of which ``read`` has been read."""
    while read and not read.endswith(b"\n"):
        read = file.readline(_PIECE)
