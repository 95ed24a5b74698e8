"""Where everything lies in the safetensors files, decided before anything is written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from farthing.models.checkpoint.packed_manifest import ALIGNMENT, WRITTEN_BY

SHARD_BYTES = 2 << 30
"""A file is as large as this at most, unless one matrix is larger."""

SHARD_TENSORS = 1 << 15
"""And has as many tensors; a reader takes twice as many."""

INDEX = "model.safetensors.index.json"


@dataclass(frozen=True, slots=True)
class Piece:
    """A tensor of a file."""

    name: str
    dtype: str  # the format's spelling
    shape: tuple[int, ...]
    nbytes: int


@dataclass(frozen=True, slots=True)
class Shard:
    """A file: its header, padded so that the data starts aligned, and its tensors in order."""

    file_name: str
    header: bytes  # length and JSON
    pieces: tuple[Piece, ...]
    offsets: tuple[int, ...]  # in the file

    @property
    def nbytes(self) -> int:
        """Bytes of the file."""
        return len(self.header) + sum(piece.nbytes for piece in self.pieces)


def plan_shards(
    matrices: Sequence[Piece], vectors: Sequence[Piece], limit: int = SHARD_BYTES
) -> list[Shard]:
    """The files. Matrices, each a multiple of 64 bytes, come first, so that all are aligned."""
    groups: list[list[Piece]] = [[]]
    size = 0
    for piece in matrices:
        assert piece.nbytes % ALIGNMENT == 0, f"{piece.name} is no packed matrix"
        full = size + piece.nbytes > limit or len(groups[-1]) == SHARD_TENSORS
        if groups[-1] and full:
            groups.append([])
            size = 0
        groups[-1].append(piece)
        size += piece.nbytes
    groups[-1].extend(vectors)
    count = len(groups)
    names = ["model.safetensors"]
    if count > 1:
        names = [f"model-{i + 1:05}-of-{count:05}.safetensors" for i in range(count)]
    return [_shard(name, pieces) for name, pieces in zip(names, groups, strict=True)]


def index_of(shards: Sequence[Shard]) -> str:
    """The text of the index of several files."""
    weight_map = {piece.name: shard.file_name for shard in shards for piece in shard.pieces}
    total = sum(piece.nbytes for shard in shards for piece in shard.pieces)
    return (
        json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}, indent=1) + "\n"
    )


def _shard(file_name: str, pieces: Sequence[Piece]) -> Shard:
    entries: dict[str, object] = {"__metadata__": {"format": WRITTEN_BY}}
    offsets = []
    at = 0
    for piece in pieces:
        entries[piece.name] = {
            "dtype": piece.dtype,
            "shape": piece.shape,
            "data_offsets": [at, at + piece.nbytes],
        }
        offsets.append(at)
        at += piece.nbytes
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    header = len(text).to_bytes(8, "little") + text
    return Shard(
        file_name, header, tuple(pieces), tuple(len(header) + offset for offset in offsets)
    )
