from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farthing.engine.block_pool import BlockPool, blocks_for
from farthing.errors import FarthingError


@pytest.mark.parametrize(("tokens", "blocks"), [(0, 0), (1, 1), (16, 1), (17, 2), (32768, 2048)])
def test_tokens_fill_whole_blocks(tokens: int, blocks: int) -> None:
    assert blocks_for(tokens) == blocks


@given(st.lists(st.integers(0, 12)), st.randoms(use_true_random=False))
def test_random_walks_lose_and_share_nothing(counts: list[int], rng: object) -> None:
    pool = BlockPool(30)
    held: list[list[int]] = []
    for count in counts:
        if count <= pool.num_free:
            held.append(pool.allocate(count))
        elif held:
            pool.free(held.pop(rng.randrange(len(held))))  # type: ignore[attr-defined]
        pool.check_integrity()
        blocks = [block for group in held for block in group]
        assert len(set(blocks)) == len(blocks)
        assert pool.num_free == 30 - len(blocks)
    for group in held:
        pool.free(group)
    assert pool.num_free == 30
    pool.check_integrity()


def test_more_than_is_free_is_refused_with_the_numbers_and_takes_nothing() -> None:
    pool = BlockPool(4)
    pool.allocate(3)
    with pytest.raises(FarthingError, match=r"2 blocks asked for, 1 of 4 free"):
        pool.allocate(2)
    assert pool.num_free == 1


def test_a_double_free_is_refused() -> None:
    pool = BlockPool(2)
    blocks = pool.allocate(1)
    pool.free(blocks)
    with pytest.raises(FarthingError, match="freed but not held"):
        pool.free(blocks)
    pool.check_integrity()
