"""Blocks are free, held or cached, and counted right, whatever happens."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farthing.engine.block_pool import BlockPool, blocks_for
from farthing.errors import FarthingError


@pytest.mark.parametrize(("tokens", "blocks"), [(0, 0), (1, 1), (16, 1), (17, 2), (32768, 2048)])
def test_tokens_fill_whole_blocks(tokens: int, blocks: int) -> None:
    assert blocks_for(tokens) == blocks


@given(st.integers(0, 2**32), st.integers(1, 40))
def test_random_walks_lose_nothing(seed: int, size: int) -> None:
    rng = random.Random(seed)
    pool = BlockPool(size)
    evicted: list[int] = []
    pool.on_evict = evicted.append
    tables: list[list[int]] = []
    kept: set[int] = set()
    for _ in range(60):
        act = rng.randrange(5)
        if act == 0 and (count := rng.randrange(8)) <= pool.num_available:
            before = pool.num_free
            evicted.clear()
            tables.append(pool.allocate(count))
            assert len(evicted) == max(count - before, 0), "free blocks are taken first"
            assert set(evicted) <= kept
            kept -= set(evicted)
        elif act == 1 and tables:
            pool.release(tables.pop(rng.randrange(len(tables))))
        elif act == 2 and tables:
            shared = rng.choice(tables)[: rng.randrange(8)]
            for block in shared:
                pool.share(block)
            tables.append(list(shared))
        elif act == 3 and (held := [block for table in tables for block in table]):
            block = rng.choice(held)
            pool.keep(block)
            kept.add(block)
        elif act == 4 and kept:
            block = rng.choice(sorted(kept))
            pool.forget(block)
            kept.discard(block)
        pool.check_integrity(tables)
        assert {block for block in range(size) if pool.is_kept(block)} == kept
        held_now = {block for table in tables for block in table}
        assert pool.num_cached == len(kept - held_now)
        assert pool.num_free == size - len(held_now | kept)
    for table in tables:
        pool.release(table)
    pool.check_integrity([])
    assert pool.num_available == size


def test_more_than_is_available_is_refused_with_the_numbers_and_takes_nothing() -> None:
    pool = BlockPool(4)
    table = pool.allocate(3)
    with pytest.raises(FarthingError, match=r"2 blocks asked for, 1 of 4 available"):
        pool.allocate(2)
    assert pool.num_free == 1
    pool.check_integrity([table])


def test_a_double_release_is_refused() -> None:
    pool = BlockPool(2)
    table = pool.allocate(1)
    pool.release(table)
    with pytest.raises(FarthingError, match="released but not held"):
        pool.release(table)
    pool.check_integrity([])


@pytest.mark.parametrize("act", ["share", "keep"])
def test_a_free_block_is_neither_shared_nor_kept(act: str) -> None:
    pool = BlockPool(2)
    with pytest.raises(FarthingError, match=r"block 1 (shared but free|kept but not held)"):
        getattr(pool, act)(1)


def test_the_least_recently_released_goes_first_and_a_table_from_its_end() -> None:
    pool = BlockPool(6)
    evicted: list[int] = []
    pool.on_evict = evicted.append
    old, young = pool.allocate(3), pool.allocate(3)
    for block in old + young:
        pool.keep(block)
    pool.release(old)
    pool.release(young)
    pool.share(old[0])  # used again: the youngest now
    pool.release([old[0]])
    pool.allocate(6)
    assert evicted == [old[2], old[1], young[2], young[1], young[0], old[0]]


def test_integrity_checks_see_a_wrong_count() -> None:
    pool = BlockPool(3)
    table = pool.allocate(2)
    with pytest.raises(AssertionError, match="not what the tables name"):
        pool.check_integrity([table, table])
    with pytest.raises(AssertionError, match="not what the tables name"):
        pool.check_integrity([])
