"""The file that keeps a prefix cache: blocks with their tokens, nothing believed when it is read.

A header, the bytes of every block as the KV cache has them, and a record for each block: digest,
salt, parent, tokens and a CRC-32 of all that and of the block's bytes. The most recently used comes
first, and parents before children, so a beginning of the file is whole by itself. Numbers are
little-endian; the format is in ``docs/decisions/prefix-cache-on-disk.md``.
"""

from __future__ import annotations

import os
import struct
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NoReturn

from farthing.engine.block_pool import BLOCK_TOKENS
from farthing.engine.prefix_cache import DIGEST_BYTES, CachedBlock, PrefixCache
from farthing.errors import ModelFormatError
from farthing.files.reader import FileReader
from farthing.program.native import KvCache

MAGIC = b"FARTHKV\n"
VERSION = 1
"""Raised by every change of what is written here."""

MOST_BLOCKS = 1 << 20
"""Blocks of one file: records stay below 120 MB."""

HEADER = struct.Struct("<8sII32sQQII")
"""Magic, version, tokens of a block, key, blocks, bytes of a block, CRC-32 of the records, and of
the header up to here."""

RECORD = struct.Struct(f"<{DIGEST_BYTES}s{DIGEST_BYTES}sII{BLOCK_TOKENS}II")
"""Digest, salt, bytes of the salt, parent (1 is the first record; 0: none), tokens, CRC-32."""

_CRC = struct.Struct("<I")
_CHUNK = 4 << 20


@dataclass(frozen=True, slots=True)
class _Record:
    digest: bytes
    salt: bytes
    parent: int | None  # index of a record before it
    tokens: tuple[int, ...]
    body_crc: int  # of the fields
    crc: int  # of the fields and the block


def write_prefix_file(
    file: BinaryIO, key: bytes, prefix_cache: PrefixCache, kv: KvCache, max_bytes: int | None = None
) -> int:
    """Writes the most recently used blocks, all or as many as fit ``max_bytes``.

    A block with a NaN or an infinity stays out, and what follows it. Returns how many were written;
    after 0 the file is not to be kept. Has the system write it to disk. Raises :class:`OSError`.
    """
    most = MOST_BLOCKS
    if max_bytes is not None:
        most = min(most, (max_bytes - HEADER.size) // (kv.block_bytes + RECORD.size))
    places: dict[CachedBlock, int] = {}
    records: list[bytes] = []
    file.seek(HEADER.size)
    for entry in prefix_cache.by_use():
        if len(records) >= most:
            break
        parent = 0 if entry.parent is None else places.get(entry.parent)
        if parent is None or not kv.is_finite(entry.block):
            continue
        body = RECORD.pack(entry.digest, entry.salt, len(entry.salt), parent, *entry.tokens, 0)[
            : -_CRC.size
        ]
        block = kv.block(entry.block).data
        file.write(block)
        records.append(body + _CRC.pack(zlib.crc32(block, zlib.crc32(body))))
        places[entry] = len(records)
    index = b"".join(records)
    file.write(index)
    header = HEADER.pack(
        MAGIC, VERSION, BLOCK_TOKENS, key, len(records), kv.block_bytes, zlib.crc32(index), 0
    )[: -_CRC.size]
    file.seek(0)
    file.write(header + _CRC.pack(zlib.crc32(header)))
    file.flush()
    os.fsync(file.fileno())
    return len(records)


def read_prefix_file(
    path: Path,
    key: bytes,
    prefix_cache: PrefixCache,
    kv: KvCache,
    *,
    vocab_size: int,
    num_threads: int = 1,
) -> int:
    """Puts the first blocks of the file, as many as are free, into the empty ``prefix_cache``.

    They are in no table and will be evicted as they would have been. Returns how many they are.
    Nothing is read into memory but their records and, where they will stay, their bytes.

    Raises :class:`ModelNotFoundError` if there is no such file, :class:`FarthingError` if it cannot
    be read and :class:`ModelFormatError` naming the place of whatever is wrong with it; the cache
    is then still empty.
    """
    assert len(prefix_cache) == 0, "only an empty prefix cache is restored"
    reader = FileReader(path)
    count, records_crc = _read_header(reader, key, kv)
    records = _read_records(
        reader, count, min(count, prefix_cache.pool.num_free), records_crc, kv.block_bytes
    )
    _check_tree(reader, records, prefix_cache, kv.block_bytes * count, vocab_size)
    blocks = prefix_cache.pool.allocate(len(records))
    try:
        _read_blocks(reader, records, blocks, kv, num_threads)
        entries: dict[int, CachedBlock] = {}
        for index in _latest_last(records):
            record = records[index]
            parent = None if record.parent is None else entries[record.parent]
            entry = prefix_cache.add(
                record.digest, parent, record.salt, record.tokens, blocks[index]
            )
            assert entry is not None, "two records have one digest"
            entries[index] = entry
    finally:
        prefix_cache.pool.release(blocks)  # the first last: it is the last to be evicted
    return len(blocks)


def _read_header(reader: FileReader, key: bytes, kv: KvCache) -> tuple[int, int]:
    """Blocks of the file, and the CRC-32 of their records."""
    if reader.size < HEADER.size:
        _fail(reader, f"has {reader.size} bytes, and a header alone has {HEADER.size}")
    data = reader.read(0, HEADER.size)
    magic, version, tokens, of, count, block_bytes, records_crc, crc = HEADER.unpack(data)
    if magic != MAGIC:
        _fail(reader, "is no saved prefix cache")
    if version != VERSION:
        _fail(reader, f"has format {version}, and this version of farthing reads {VERSION}", 8)
    if crc != zlib.crc32(data[: -_CRC.size]):
        _fail(reader, "the checksum of the header is wrong", HEADER.size - _CRC.size)
    if of != key:
        _fail(reader, "was saved with other weights, another KV type or another version", 16)
    if tokens != BLOCK_TOKENS or block_bytes != kv.block_bytes:
        _fail(
            reader,
            f"has blocks of {tokens} tokens in {block_bytes} bytes where {BLOCK_TOKENS} in "
            f"{kv.block_bytes} are needed",
            12,
        )
    if count > MOST_BLOCKS:
        _fail(reader, f"has {count} blocks, more than {MOST_BLOCKS}", 48)
    size = HEADER.size + count * (block_bytes + RECORD.size)
    if reader.size != size:
        _fail(reader, f"has {reader.size} bytes where {count} blocks make {size}", 48)
    return count, records_crc


def _read_records(
    reader: FileReader, count: int, wanted: int, expected_crc: int, block_bytes: int
) -> list[_Record]:
    """The first ``wanted`` of ``count`` records; the checksum is that of all."""
    start = HEADER.size + count * block_bytes
    data = reader.read(start, wanted * RECORD.size)
    crc = zlib.crc32(data)
    end = start + count * RECORD.size
    for offset in range(start + len(data), end, _CHUNK):
        crc = zlib.crc32(reader.read(offset, min(_CHUNK, end - offset)), crc)
    if crc != expected_crc:
        _fail(reader, "the checksum of the records is wrong", start)
    records = []
    for index, (digest, salt, salt_bytes, parent, *tokens, crc) in enumerate(
        RECORD.iter_unpack(data)
    ):
        offset = index * RECORD.size
        if parent > index:
            _fail(reader, f"record {index} has no parent before it", start + offset)
        if salt_bytes not in (0, DIGEST_BYTES) or any(salt[salt_bytes:]):
            _fail(reader, f"record {index} has a salt of {salt_bytes} bytes", start + offset)
        body = data[offset : offset + RECORD.size - _CRC.size]
        records.append(
            _Record(
                digest,
                salt[:salt_bytes],
                parent - 1 if parent else None,
                tuple(tokens),
                zlib.crc32(body),
                crc,
            )
        )
    return records


def _check_tree(
    reader: FileReader,
    records: list[_Record],
    prefix_cache: PrefixCache,
    data_bytes: int,
    vocab_size: int,
) -> None:
    """Refuses tokens that no prompt has, and digests that are not those of the tokens."""
    seen: set[bytes] = set()
    for index, record in enumerate(records):
        offset = HEADER.size + data_bytes + index * RECORD.size
        if max(record.tokens) >= vocab_size:
            problem = f"record {index} has token {max(record.tokens)} of {vocab_size}"
            _fail(reader, problem, offset)
        parent = None if record.parent is None else records[record.parent]
        if parent is not None and parent.salt != record.salt:
            _fail(reader, f"record {index} has another salt than its parent", offset)
        before = record.salt if parent is None else parent.digest
        if prefix_cache.next_digest(before, record.tokens) != record.digest:
            _fail(reader, f"record {index} has a digest of other tokens", offset)
        if record.digest in seen:
            _fail(reader, f"record {index} is there twice", offset)
        seen.add(record.digest)


def _latest_last(records: list[_Record]) -> list[int]:
    """Parents before children, and of blocks with one parent the last used last, as they came."""
    depths: list[int] = []
    for record in records:
        depths.append(0 if record.parent is None else depths[record.parent] + 1)
    return sorted(range(len(records)), key=lambda index: (depths[index], -index))


def _read_blocks(
    reader: FileReader, records: list[_Record], blocks: list[int], kv: KvCache, num_threads: int
) -> None:
    """Fills ``blocks``; raises for one that is not as it was written."""
    num_threads = max(1, min(num_threads, len(blocks)))
    stop = threading.Event()

    def read_every_nth(first: int) -> None:
        try:
            for index in range(first, len(blocks), num_threads):
                if stop.is_set():
                    return
                read(index)
        except BaseException:
            stop.set()
            raise

    def read(index: int) -> None:
        offset = HEADER.size + index * kv.block_bytes
        data = kv.block(blocks[index])
        reader.read_into(offset, data)
        if zlib.crc32(data.data, records[index].body_crc) != records[index].crc:
            _fail(reader, f"the checksum of block {index} is wrong", offset)
        if not kv.is_finite(blocks[index]):
            _fail(reader, f"block {index} has a NaN or an infinity", offset)

    with ThreadPoolExecutor(num_threads) as threads:
        list(threads.map(read_every_nth, range(num_threads)))


def _fail(reader: FileReader, problem: str, offset: int | None = None) -> NoReturn:
    raise ModelFormatError(reader.path, problem, offset=offset)
