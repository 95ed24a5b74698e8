"""A damaged or forged prefix cache is refused whole, and costs little."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from farthing.engine.prefix_cache import PrefixCache, chained_digest
from farthing.engine.prefix_file import HEADER, MOST_BLOCKS, RECORD
from farthing.errors import FarthingError, ModelFormatError, ModelNotFoundError
from farthing.program.kv_types import KV_DTYPES, KvDtype
from support.bounds import bounded
from support.prefix_caches import (
    KEY,
    OTHER,
    TENANT,
    VOCABULARY,
    Cache,
    boundaries,
    branches,
    forge,
    prompt,
)

NAN = float("nan")


def assert_refused(path: Path, words: str, dtype: KvDtype = "fp16") -> None:
    cache = Cache(dtype=dtype)
    with pytest.raises(ModelFormatError, match=words) as caught:
        cache.read(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)
    cache.assert_empty()


def test_every_bit_of_the_header_and_every_byte_of_the_records_counts(saved: Path) -> None:
    raw = saved.read_bytes()
    records = range(len(raw) - 9 * RECORD.size, len(raw))
    flips = [(i, 1 << bit) for i in range(HEADER.size) for bit in range(8)]
    flips += [(i, 0xFF) for i in records]
    cache = Cache()
    for place, mask in flips:
        changed = bytearray(raw)
        changed[place] ^= mask
        saved.write_bytes(changed)
        with pytest.raises(ModelFormatError):
            cache.read(saved)
        assert len(cache.tree) == 0, f"byte {place}"
    cache.assert_empty()


def test_any_bit_of_a_block_counts(saved: Path) -> None:
    raw = saved.read_bytes()
    rng = random.Random(3)
    cache = Cache()
    size = cache.kv.block_bytes
    for number in range(300):
        place = HEADER.size + number % 9 * size + rng.randrange(size)
        changed = bytearray(raw)
        changed[place] ^= 1 << rng.randrange(8)
        saved.write_bytes(changed)
        with pytest.raises(ModelFormatError, match=f"the checksum of block {number % 9} is wrong"):
            cache.read(saved, num_threads=1 + number % 3)
    cache.assert_empty()


def test_two_blocks_that_change_places_are_noticed(saved: Path) -> None:
    raw = bytearray(saved.read_bytes())
    size = Cache().kv.block_bytes
    first, second = (slice(HEADER.size + i * size, HEADER.size + (i + 1) * size) for i in (2, 5))
    raw[first], raw[second] = raw[second], raw[first]
    saved.write_bytes(raw)
    assert_refused(saved, "the checksum of block 2 is wrong")


def test_a_file_of_any_other_length_is_refused(saved: Path) -> None:
    raw = saved.read_bytes()
    places = list(boundaries(9, Cache().kv.block_bytes))
    assert places[-1] == len(raw)
    lengths = {place + by for place in places for by in (-1, 0, 1)} - {-1, len(raw)}
    cache = Cache()
    for length in sorted(lengths):
        saved.write_bytes((raw + b"\0")[:length])
        with pytest.raises(ModelFormatError, match=r"has \d+ bytes"):
            cache.read(saved)
    cache.assert_empty()


HOSTILE_HEADERS = {
    "magic": ({"magic": b"FARTHKW\n"}, "is no saved prefix cache"),
    "version": ({"version": 2}, r"byte 8.*format 2, and this version of farthing reads 1"),
    "key": ({"key": KEY[::-1]}, "saved with other weights, another KV type or another version"),
    "tokens": ({"tokens": 32}, "blocks of 32 tokens"),
    "bytes": ({"bytes": 4097}, "in 4097 bytes where 16 in 4096 are needed"),
    "no bytes": ({"bytes": 0}, "in 0 bytes"),
    "one block more": ({"blocks": 10}, "10 blocks make"),
    "one block less": ({"blocks": 8}, "8 blocks make"),
    "none": ({"blocks": 0}, "0 blocks make 72"),
    "many": ({"blocks": MOST_BLOCKS + 1}, f"has {MOST_BLOCKS + 1} blocks, more than"),
    "2**63": ({"blocks": 2**63}, f"has {2**63} blocks, more than"),
    "2**64 - 1": ({"blocks": 2**64 - 1}, f"has {2**64 - 1} blocks, more than"),
    "records": ({"records_crc": 0}, "the checksum of the records is wrong"),
}


@pytest.mark.parametrize("name", HOSTILE_HEADERS)
def test_a_header_with_a_right_checksum_is_not_believed(name: str, saved: Path) -> None:
    fields, words = HOSTILE_HEADERS[name]
    forge(saved, header=fields)
    with bounded():
        assert_refused(saved, words)


def test_a_forged_file_is_refused_for_the_forgery_alone(saved: Path) -> None:
    raw = saved.read_bytes()
    forge(saved)
    assert saved.read_bytes() == raw
    assert Cache().read(saved) == 9


HOSTILE_RECORDS = {
    "a parent behind it": ({3: {"parent": 5}}, "record 3 has no parent before it"),
    "itself": ({3: {"parent": 4}}, "record 3 has no parent before it"),
    "2**32 - 1": ({8: {"parent": 2**32 - 1}}, "record 8 has no parent before it"),
    "another parent": ({1: {"parent": 0}}, "record 1 has a digest of other tokens"),
    "a token too large": ({4: {"tokens": [VOCABULARY, *range(15)]}}, "token 1000 of 1000"),
    "the largest": ({4: {"tokens": [*range(15), 2**32 - 1]}}, f"token {2**32 - 1} of 1000"),
    "other tokens": ({4: {"tokens": list(range(16))}}, "record 4 has a digest of other tokens"),
    "another digest": ({0: {"digest": bytes(16)}}, "record 0 has a digest of other tokens"),
    "a short salt": ({0: {"salt_bytes": 3}}, "record 0 has a salt of 3 bytes"),
    "a hidden salt": ({0: {"salt": TENANT}}, "record 0 has a salt of 0 bytes"),
    "another salt": (
        {i: {"salt": TENANT, "salt_bytes": 16} for i in range(9)},
        "record 0 has a digest of other tokens",
    ),
}


@pytest.mark.parametrize("name", HOSTILE_RECORDS)
def test_a_record_with_a_right_checksum_is_not_believed(name: str, saved: Path) -> None:
    records, words = HOSTILE_RECORDS[name]
    forge(saved, records=records)
    assert_refused(saved, words)


def test_a_block_has_the_salt_of_its_parent(saved: Path) -> None:
    """Its digest is right; it would be found by nobody."""
    raw = saved.read_bytes()
    start = HEADER.size + 9 * Cache().kv.block_bytes
    records = list(RECORD.iter_unpack(raw[start:]))
    child = next(i for i, record in enumerate(records) if record[3])
    forge(saved, records={child: {"salt": OTHER, "salt_bytes": 16}})
    assert_refused(saved, f"record {child} has another salt than its parent")


def test_nothing_is_there_twice(saved: Path) -> None:
    start = HEADER.size + 9 * Cache().kv.block_bytes
    records = list(RECORD.iter_unpack(saved.read_bytes()[start:]))
    roots = [i for i, record in enumerate(records) if not record[3]]
    digest, salt, salt_bytes, parent, *tokens, _ = records[roots[0]]
    copy = {
        "digest": digest,
        "salt": salt,
        "salt_bytes": salt_bytes,
        "parent": parent,
        "tokens": tokens,
    }
    leaf = len(records) - 1  # followed by nothing
    forge(saved, records={leaf: copy})
    assert_refused(saved, f"record {leaf} is there twice")


@pytest.mark.parametrize("dtype", KV_DTYPES)
def test_numbers_that_are_none_are_refused_with_right_checksums(
    dtype: KvDtype, tmp_path: Path
) -> None:
    cache = Cache(dtype=dtype)
    branches(cache)
    path = tmp_path / "saved"
    cache.write(path)
    number = np.float16(NAN) if dtype == "fp16" else np.float32(NAN)
    end = HEADER.size + 7 * cache.kv.block_bytes
    forge(path, data={end - number.nbytes: number.tobytes()})
    assert_refused(path, "block 6 has a NaN or an infinity", dtype)


def test_what_a_smaller_pool_does_not_take_is_not_read(saved: Path) -> None:
    """Its records are: they have one checksum."""
    raw = bytearray(saved.read_bytes())
    raw[HEADER.size + 6 * Cache().kv.block_bytes] ^= 1
    saved.write_bytes(raw)
    assert Cache(6).read(saved) == 6
    with pytest.raises(ModelFormatError, match="block 6"):
        Cache(7).read(saved)


def test_a_file_with_holes_that_claims_a_million_blocks_costs_little(tmp_path: Path) -> None:
    cache = Cache()
    cache.compute(prompt(1, 1))
    path = tmp_path / "saved"
    cache.write(path)
    forge(path, header={"blocks": MOST_BLOCKS})
    with path.open("r+b") as file:
        file.truncate(HEADER.size + MOST_BLOCKS * (cache.kv.block_bytes + RECORD.size))
    with bounded():
        assert_refused(path, "the checksum of the records is wrong")


def test_a_file_that_is_not_there_or_cannot_be_one(tmp_path: Path) -> None:
    cache = Cache()
    with pytest.raises(ModelNotFoundError):
        cache.read(tmp_path / "nowhere")
    with pytest.raises(FarthingError, match="not a regular file"):
        cache.read(tmp_path)
    cache.assert_empty()


def test_a_file_that_is_cut_while_it_is_read_is_an_error(saved: Path) -> None:
    """X20, B23: it is not mapped, so nothing ends the process."""
    cache = Cache()

    def cut_and_digest(before: bytes, tokens: Sequence[int]) -> bytes:
        with saved.open("r+b") as file:
            file.truncate(HEADER.size + 3 * cache.kv.block_bytes)
        return chained_digest(before, tokens)

    cache.tree = PrefixCache(cache.pool, cut_and_digest)
    with pytest.raises(ModelFormatError, match="changed after it was opened"):
        cache.read(saved)
    cache.assert_empty()
