"""A saved prefix cache comes back as it was, or not at all."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from farthing.engine.prefix_cache import MOST_COMPARED, PrefixCache, chained_digest, salt_of
from farthing.engine.prefix_file import HEADER, MOST_BLOCKS, RECORD
from farthing.errors import FarthingError, ModelFormatError, ModelNotFoundError
from farthing.program.native import KvDtype
from support.bounds import bounded
from support.prefix_caches import (
    HEAD_DIM,
    KEY,
    VOCABULARY,
    Cache,
    boundaries,
    content,
    forge,
    prompt,
)

TENANT = salt_of("one tenant")
OTHER = salt_of("another")
NAN = float("nan")


def branches(cache: Cache) -> None:
    """Nine blocks: a trunk of two with branches of two and one, a tenant's own of it, a root."""
    trunk = prompt(1, 2)
    cache.compute([*trunk, *prompt(2, 2)])
    cache.compute(trunk, TENANT)
    cache.compute(prompt(3, 2))
    cache.compute([*trunk, *prompt(4, 1)])


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    cache = Cache()
    branches(cache)
    assert cache.write(tmp_path / "saved") == 9
    return tmp_path / "saved"


def assert_refused(path: Path, words: str, dtype: KvDtype = "fp16") -> None:
    cache = Cache(dtype=dtype)
    with pytest.raises(ModelFormatError, match=words) as caught:
        cache.read(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)
    cache.assert_empty()


@pytest.mark.parametrize("dtype", ["fp16", "int8", "fp32"])
@pytest.mark.parametrize("num_threads", [1, 3])
def test_everything_is_found_again_and_will_be_evicted_in_the_same_order(
    dtype: KvDtype, num_threads: int, tmp_path: Path
) -> None:
    before, after = Cache(dtype=dtype), Cache(dtype=dtype)
    branches(before)
    assert before.write(tmp_path / "saved") == 9
    assert after.read(tmp_path / "saved", num_threads) == 9
    after.assert_whole()
    assert after.eviction_order() == before.eviction_order()
    assert after.found([*prompt(1, 2), *prompt(2, 2)]) == 4
    assert after.found([*prompt(1, 2), *prompt(4, 1)]) == 3
    assert after.found(prompt(3, 2)) == 2
    assert after.found(prompt(5, 2)) == 0


def test_the_salts_of_tenants_survive(saved: Path) -> None:
    cache = Cache()
    cache.read(saved)
    assert cache.found(prompt(1, 2), TENANT) == 2
    assert cache.found(prompt(1, 2), OTHER) == 0
    assert cache.found(prompt(3, 2)) == 2
    assert cache.found(prompt(3, 2), TENANT) == 0


@pytest.mark.parametrize("num_blocks", range(1, 10))
def test_a_smaller_pool_gets_what_was_used_last(num_blocks: int, saved: Path) -> None:
    whole, cache = Cache(), Cache(num_blocks)
    whole.read(saved)
    assert cache.read(saved) == num_blocks
    cache.assert_whole()
    assert cache.eviction_order() == whole.eviction_order()[-num_blocks:]


@pytest.mark.parametrize("blocks", range(10))
def test_a_file_of_limited_size_gets_what_was_used_last(blocks: int, tmp_path: Path) -> None:
    whole, cache = Cache(), Cache()
    branches(whole)
    limit = HEADER.size + (blocks + 1) * (whole.kv.block_bytes + RECORD.size) - 1
    assert whole.write(tmp_path / "saved", limit) == blocks
    assert (tmp_path / "saved").stat().st_size <= limit
    assert cache.read(tmp_path / "saved") == blocks
    assert cache.eviction_order() == whole.eviction_order()[9 - blocks :]


def test_blocks_of_running_requests_come_first(tmp_path: Path) -> None:
    whole, cache = Cache(), Cache(3)
    whole.hold(prompt(1, 3))
    whole.compute(prompt(2, 4))
    assert whole.write(tmp_path / "saved") == 7
    cache.read(tmp_path / "saved")
    assert cache.found(prompt(1, 3)) == 3


def test_a_restored_cache_goes_on_as_any_other(saved: Path, tmp_path: Path) -> None:
    cache, again = Cache(12), Cache(12)
    cache.read(saved)
    cache.compute([*prompt(1, 2), *prompt(2, 2), *prompt(6, 5)])  # evicts two of nine
    cache.assert_whole()
    assert cache.found([*prompt(1, 2), *prompt(2, 2), *prompt(6, 5)]) == 9
    assert cache.write(tmp_path / "again") == 12
    again.read(tmp_path / "again")
    assert again.eviction_order() == cache.eviction_order()


def test_a_cache_with_blocks_in_use_takes_only_free_ones(saved: Path) -> None:
    cache = Cache(12)
    held = cache.pool.allocate(7)
    assert cache.read(saved) == 5
    cache.pool.check_integrity([held])


def test_beginnings_of_blocks_are_found_as_before(tmp_path: Path) -> None:
    """Of more siblings than are compared, the same are."""
    before, after = Cache(64), Cache(64)
    trunk = prompt(1, 1)
    siblings = [[7, *range(i), *range(100, 115 - i)] for i in range(15)]
    siblings += [[7, 8, *prompt(i, 1)[2:]] for i in range(MOST_COMPARED)]
    for own in siblings:
        before.compute([*trunk, *own])
        before.compute(own)
    before.write(tmp_path / "saved")
    after.read(tmp_path / "saved")

    def lengths(cache: Cache, parents: bool) -> list[int]:
        digest = cache.tree.next_digest(b"", trunk)
        parent = cache.tree.find(digest, None, b"", tuple(trunk)) if parents else None
        found = [cache.tree.find_start(parent, b"", own) for own in siblings]
        return [0 if start is None else start[1] for start in found]

    for parents in (True, False):
        expected = lengths(before, parents)
        assert lengths(after, parents) == expected
        assert set(expected) == {1, 16}, "some are too old to be compared"


@given(
    requests=st.lists(
        st.tuples(st.integers(0, 2), st.integers(1, 4), st.integers(0, 2), st.integers(0, 3)),
        min_size=1,
        max_size=12,
    ),
    before=st.integers(8, 20),
    after=st.integers(1, 20),
)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_random_histories_come_back_in_their_order(
    requests: list[tuple[int, int, int, int]], before: int, after: int, tmp_path: Path
) -> None:
    """Requests share trunks, evict each other, and belong to one of two tenants or to none."""
    cache, restored = Cache(before), Cache(after)
    for seed, trunk, own, salt in requests:
        tokens = [*prompt(seed, trunk), *prompt(9 + seed, own)]
        cache.compute(tokens, (b"", b"", TENANT, OTHER)[salt])
        cache.assert_whole()
    order = cache.eviction_order()
    assert cache.write(tmp_path / "saved") == len(order)
    assert restored.read(tmp_path / "saved", num_threads=2) == min(after, len(order))
    restored.assert_whole()
    assert restored.eviction_order() == order[-after:]
    for entry in restored.tree.entries():
        np.testing.assert_array_equal(
            restored.kv.block(entry.block), content(restored.kv, entry.digest)
        )


@pytest.mark.parametrize("value", [NAN, float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", ["fp16", "int8", "fp32"])
def test_a_block_that_is_not_finite_stays_out_with_what_follows_it(
    dtype: KvDtype, value: float, tmp_path: Path
) -> None:
    cache, after = Cache(dtype=dtype), Cache(dtype=dtype)
    chain = cache.compute(prompt(1, 4))
    cache.compute(prompt(2, 2))
    for block in (chain[2].block, chain[0].block):
        assert cache.kv.is_finite(block)
    number = np.float16(value) if dtype == "fp16" else np.float32(value)
    cache.kv.block(chain[2].block)[-number.nbytes :] = np.frombuffer(number.tobytes(), np.uint8)
    assert not cache.kv.is_finite(chain[2].block)
    assert cache.write(tmp_path / "saved") == 4
    after.read(tmp_path / "saved")
    assert after.found(prompt(1, 4)) == 2
    assert after.found(prompt(2, 2)) == 2


def test_codes_of_an_int8_cache_are_no_floats() -> None:
    cache = Cache(1, "int8")
    block = cache.kv.block(0)
    block[:] = content(cache.kv, b"codes")
    heads = block.reshape(-1, 2 * 16 * (HEAD_DIM + 4))
    heads[:, : 2 * 16 * HEAD_DIM] = 0xFF  # as float32: a NaN
    assert cache.kv.is_finite(0)
    for place in (2 * 16 * HEAD_DIM, 2 * 16 * (HEAD_DIM + 4) - 4):
        scale = heads[1, place : place + 4].copy()
        heads[1, place : place + 4] = 0xFF
        assert not cache.kv.is_finite(0)
        heads[1, place : place + 4] = scale
    assert cache.kv.is_finite(0)


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


@pytest.mark.parametrize("dtype", ["fp16", "int8", "fp32"])
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
