"""A saved prefix cache comes back as it was, or not at all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from farthing.engine.prefix_cache import MOST_COMPARED
from farthing.engine.prefix_file import HEADER, RECORD
from farthing.program.kv_types import BITS, KV_DTYPES, KV_SIDES, LARGEST_CODE, KvDtype
from support.prefix_caches import (
    HEAD_DIM,
    KV_HEADS,
    LAYERS,
    OTHER,
    TENANT,
    Cache,
    branches,
    content,
    prompt,
)

NAN = float("nan")


@pytest.mark.parametrize("dtype", KV_DTYPES)
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
@pytest.mark.parametrize("dtype", KV_DTYPES)
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


@pytest.mark.parametrize("dtype", KV_DTYPES)
def test_codes_are_no_floats(dtype: KvDtype) -> None:
    """Bits of a NaN are one in each part of a head's bytes but where codes are."""
    cache = Cache(1, dtype)
    block = cache.kv.block(0)
    block[:] = content(cache.kv, b"codes")
    heads = block.reshape(LAYERS * KV_HEADS, -1)
    sides = KV_SIDES[dtype]
    parts = [(BITS[side] * 16 * HEAD_DIM // 8, side in LARGEST_CODE) for side in sides]
    parts += [(16 * 4, False) for side in sides if side in LARGEST_CODE]
    assert heads.shape[1] == sum(size for size, _ in parts)
    start = 0
    for size, codes in parts:
        for place in (start, start + size - 4):
            number = heads[1, place : place + 4].copy()
            heads[1, place : place + 4] = 0xFF
            assert cache.kv.is_finite(0) == codes
            heads[1, place : place + 4] = number
        start += size
    assert cache.kv.is_finite(0)
