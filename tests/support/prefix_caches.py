"""Prefix caches whose blocks hold what their digests say, and saved ones that are lies."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from farthing.engine.block_pool import BLOCK_TOKENS, BlockPool
from farthing.engine.prefix_cache import CachedBlock, PrefixCache, salt_of
from farthing.engine.prefix_file import HEADER, RECORD, read_prefix_file, write_prefix_file
from farthing.program.kv_types import BITS, KV_SIDES, LARGEST_CODE, KvDtype
from farthing.program.native import KvCache

KEY = bytes(range(32))
VOCABULARY = 1000
LAYERS, KV_HEADS, HEAD_DIM = 2, 2, 16
TENANT = salt_of("one tenant")
OTHER = salt_of("another")
HEADER_FIELDS = ("magic", "version", "tokens", "key", "blocks", "bytes", "records_crc", "crc")


class Cache:
    """A prefix cache over a KV cache, filled as requests would fill it."""

    def __init__(self, num_blocks: int = 32, dtype: KvDtype = "fp16") -> None:
        self.kv = KvCache(
            dtype=dtype,
            num_layers=LAYERS,
            num_kv_heads=KV_HEADS,
            head_dim=HEAD_DIM,
            num_blocks=num_blocks,
        )
        self.pool = BlockPool(num_blocks)
        self.tree = PrefixCache(self.pool)

    def compute(self, tokens: Sequence[int], salt: bytes = b"") -> list[CachedBlock]:
        """A request with ``tokens``, whole blocks of them: its table is made and released."""
        chain = self.hold(tokens, salt)
        self.pool.release([entry.block for entry in chain])
        return chain

    def hold(self, tokens: Sequence[int], salt: bytes = b"") -> list[CachedBlock]:
        """As :meth:`compute`, but the request goes on."""
        chain: list[CachedBlock] = []
        for start in range(0, len(tokens), BLOCK_TOKENS):
            own = tuple(tokens[start : start + BLOCK_TOKENS])
            parent = chain[-1] if chain else None
            digest = self.tree.next_digest(parent.digest if parent else salt, own)
            entry = self.tree.find(digest, parent, salt, own)
            if entry is not None:
                self.pool.share(entry.block)
            else:
                (block,) = self.pool.allocate(1)
                self.kv.block(block)[:] = content(self.kv, digest)
                entry = self.tree.add(digest, parent, salt, own, block)
                assert entry is not None
            chain.append(entry)
        return chain

    def write(self, path: Path, max_bytes: int | None = None) -> int:
        """Writes the file; returns the blocks in it."""
        with path.open("wb") as file:
            return write_prefix_file(file, KEY, self.tree, self.kv, max_bytes)

    def read(self, path: Path, num_threads: int = 1) -> int:
        """Restores from the file; returns the blocks that are then here."""
        return read_prefix_file(
            path, KEY, self.tree, self.kv, vocab_size=VOCABULARY, num_threads=num_threads
        )

    def found(self, tokens: Sequence[int], salt: bytes = b"") -> int:
        """Blocks that a request with ``tokens`` would find; checks what they hold."""
        chain: list[CachedBlock] = []
        for start in range(0, len(tokens), BLOCK_TOKENS):
            own = tuple(tokens[start : start + BLOCK_TOKENS])
            parent = chain[-1] if chain else None
            digest = self.tree.next_digest(parent.digest if parent else salt, own)
            entry = self.tree.find(digest, parent, salt, own)
            if entry is None:
                break
            np.testing.assert_array_equal(self.kv.block(entry.block), content(self.kv, digest))
            chain.append(entry)
        return len(chain)

    def eviction_order(self) -> list[bytes]:
        """Digests of the cached blocks, the first to be evicted first."""
        digests = {entry.block: entry.digest for entry in self.tree.entries()}
        return [digests[block] for block in self.pool.cached()]

    def assert_empty(self) -> None:
        """Nothing is held, cached or lost."""
        assert len(self.tree) == 0
        assert self.pool.num_free == self.pool.num_blocks
        self.assert_whole()

    def assert_whole(self) -> None:
        """Tree and pool agree, and nobody holds a block."""
        self.tree.check_integrity()
        self.pool.check_integrity([])


def content(kv: KvCache, digest: bytes) -> NDArray[np.uint8]:
    """Bytes of a block as a pass could have stored them, told by ``digest``."""
    rng = np.random.default_rng(list(digest))
    heads, numbers = LAYERS * KV_HEADS, BLOCK_TOKENS * HEAD_DIM
    planes: list[NDArray[np.generic]] = []
    scales: list[NDArray[np.generic]] = []
    for side in KV_SIDES[kv.dtype]:
        if side in LARGEST_CODE:
            planes.append(rng.integers(0, 256, (heads, numbers * BITS[side] // 8), np.uint8))
            scales.append(rng.random((heads, BLOCK_TOKENS), np.float32))
        else:
            dtype = np.float16 if side == "fp16" else np.float32
            planes.append(rng.standard_normal((heads, numbers)).astype(dtype))
    parts = [part.view(np.uint8) for part in planes + scales]
    return np.concatenate(parts, axis=1).reshape(-1)


def prompt(seed: int, blocks: int) -> list[int]:
    """Tokens of whole blocks."""
    rng = np.random.default_rng(seed)
    values: list[int] = rng.integers(0, VOCABULARY, blocks * BLOCK_TOKENS).tolist()
    return values


def forge(
    path: Path,
    *,
    header: Mapping[str, object] | None = None,
    records: Mapping[int, Mapping[str, object]] | None = None,
    data: Mapping[int, bytes] | None = None,
) -> None:
    """Changes fields of a file, or bytes of its blocks, and makes every checksum right again.

    ``data``: by offset in the file. Fields of a header that are checksums stay as given.
    """
    raw = bytearray(path.read_bytes())
    for offset, changed in (data or {}).items():
        raw[offset : offset + len(changed)] = changed
    fields = dict(zip(HEADER_FIELDS, HEADER.unpack(raw[: HEADER.size]), strict=True))
    count, size = fields["blocks"], fields["bytes"]
    start = HEADER.size + count * size
    for index in range(count):
        at = start + index * RECORD.size
        digest, salt, salt_bytes, parent, *tokens, _ = RECORD.unpack(raw[at : at + RECORD.size])
        record = {"digest": digest, "salt": salt, "salt_bytes": salt_bytes, "parent": parent}
        record |= {"tokens": tokens} | dict((records or {}).get(index, {}))
        *before, tokens = record.values()
        body = RECORD.pack(*before, *tokens, 0)[:-4]
        block = raw[HEADER.size + index * size : HEADER.size + (index + 1) * size]
        raw[at : at + RECORD.size] = body + struct.pack("<I", zlib.crc32(block, zlib.crc32(body)))
    fields["records_crc"] = zlib.crc32(raw[start:])
    fields |= header or {}
    body = HEADER.pack(*fields.values())[:-4]
    raw[: HEADER.size] = body + struct.pack("<I", zlib.crc32(body))
    path.write_bytes(raw)


def boundaries(count: int, block_bytes: int) -> Iterator[int]:
    """Offsets at which a part of a file with ``count`` blocks begins or ends."""
    yield 0
    yield from (HEADER.size + index * block_bytes for index in range(count + 1))
    start = HEADER.size + count * block_bytes
    yield from (start + index * RECORD.size for index in range(1, count + 1))


def branches(cache: Cache) -> None:
    """Nine blocks: a trunk of two with branches of two and one, a tenant's own of it, a root."""
    trunk = prompt(1, 2)
    cache.compute([*trunk, *prompt(2, 2)])
    cache.compute(trunk, TENANT)
    cache.compute(prompt(3, 2))
    cache.compute([*trunk, *prompt(4, 1)])
