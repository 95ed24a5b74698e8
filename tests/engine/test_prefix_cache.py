"""Blocks are found by the tokens before them, and by nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from farthing.engine.block_pool import BlockPool
from farthing.engine.prefix_cache import (
    CachedBlock,
    PrefixCache,
    chained_digest,
    salt_of,
)


def tokens_of(number: int) -> tuple[int, ...]:
    return tuple(range(number, number + 16))


class Chains:
    """A pool, its cache, and chains of blocks by their numbers."""

    def __init__(self, blocks: int = 8, digests: int | None = None) -> None:
        def colliding(before: bytes, tokens: Sequence[int]) -> bytes:
            digest = chained_digest(before, tokens)
            return digest if digests is None else bytes([digest[0] % digests])

        self.pool = BlockPool(blocks)
        self.cache = PrefixCache(self.pool, colliding)

    def add(self, *numbers: int, salt: bytes = b"") -> tuple[list[int], list[CachedBlock | None]]:
        """A held table whose block i has the tokens of ``numbers[i]``, put into the cache."""
        table = self.pool.allocate(len(numbers))
        entries: list[CachedBlock | None] = []
        before, parent = salt, None
        for number, block in zip(numbers, table, strict=True):
            before = self.cache.next_digest(before, tokens_of(number))
            entry = self.cache.add(before, parent, salt, tokens_of(number), block)
            entries.append(entry)
            if entry is None:
                break
            parent = entry
        return table, entries

    def find(self, *numbers: int, salt: bytes = b"") -> list[int]:
        """The blocks found for a sequence of ``numbers``."""
        found: list[int] = []
        before, parent = salt, None
        for number in numbers:
            before = self.cache.next_digest(before, tokens_of(number))
            entry = self.cache.find(before, parent, salt, tokens_of(number))
            if entry is None:
                break
            found.append(entry.block)
            parent = entry
        return found


def test_the_longest_chain_of_equal_blocks_is_found() -> None:
    chains = Chains()
    table, _ = chains.add(1, 2, 3)
    assert chains.find(1, 2, 3, 4) == table
    assert chains.find(1, 2, 9, 3) == table[:2]
    assert chains.find(2, 3) == []
    assert chains.find(3) == []


def test_tenants_never_see_each_others_blocks() -> None:
    chains = Chains()
    mine, _ = chains.add(1, 2, salt=salt_of("me"))
    yours, _ = chains.add(1, 2, salt=salt_of("you"))
    assert chains.find(1, 2, salt=salt_of("me")) == mine
    assert chains.find(1, 2, salt=salt_of("you")) == yours
    assert chains.find(1, 2) == []
    assert b"me" not in salt_of("me")


def test_equal_digests_cost_a_hit_and_never_an_answer() -> None:
    chains = Chains(digests=1)  # every digest is the same
    table, _ = chains.add(1)
    assert chains.find(1) == table
    assert chains.find(2) == []
    assert chains.find(1, salt=salt_of("you")) == []
    _, entries = chains.add(2, 3)
    assert entries == [None]
    chains.cache.check_integrity()
    assert len(chains.cache) == 1


def test_a_block_that_is_there_stands_for_one_computed_again() -> None:
    chains = Chains()
    first, entries = chains.add(1, 2)
    second, again = chains.add(1, 2)
    assert again == entries
    assert [entry.block for entry in again if entry] == first != second
    assert not any(chains.pool.is_kept(block) for block in second)


def test_blocks_are_evicted_from_the_ends_of_chains() -> None:
    chains = Chains(blocks=4)
    long, _ = chains.add(1, 2, 3)
    short, _ = chains.add(9)
    chains.pool.release(long)
    chains.pool.release(short)
    for left in (2, 1, 0):
        chains.pool.allocate(1)
        chains.cache.check_integrity()
        assert chains.find(1, 2, 3) == long[:left]
    assert chains.find(9) == short


def test_what_is_discarded_goes_with_all_that_follows_it() -> None:
    chains = Chains()
    table, entries = chains.add(1, 2, 3)
    other, _ = chains.add(1, 7)
    assert entries[1] is not None
    chains.cache.discard(entries[1])
    chains.cache.check_integrity()
    assert chains.find(1, 2, 3) == table[:1]
    assert chains.find(1, 7) == [table[0], other[1]]
    chains.pool.release(table)
    chains.pool.release(other)
    chains.cache.check_integrity()
    assert chains.pool.num_cached == 2
    # Whoever still has the discarded block as its last cannot hang another one on it.
    assert chains.cache.add(b"x", entries[1], b"", tokens_of(4), other[0]) is None
    chains.cache.clear()
    assert len(chains.cache) == 0
    assert chains.pool.num_free == 8


def test_parents_come_before_children() -> None:
    chains = Chains()
    chains.add(1, 2, 3)
    chains.add(1, 5)
    seen: set[CachedBlock] = set()
    for entry in chains.cache.entries():
        assert entry.parent is None or entry.parent in seen
        seen.add(entry)
    assert len(seen) == len(chains.cache) == 4


def test_a_block_that_begins_alike_is_found_with_the_length_they_share() -> None:
    chains = Chains()
    _, entries = chains.add(1, 2)
    parent, block = entries
    for length in range(1, 17):
        rest = [*range(2, 2 + length), 999][:16]
        assert chains.cache.find_start(parent, b"", rest) == (block, length)
    assert chains.cache.find_start(parent, b"", []) is None
    assert chains.cache.find_start(parent, b"", [3, 4]) is None, "it begins otherwise"
    assert chains.cache.find_start(block, b"", [2, 3]) is None, "nothing follows it"
    assert chains.cache.find_start(None, b"", [1, 2, 9]) == (parent, 2)
    assert chains.cache.find_start(None, salt_of("you"), [1, 2, 9]) is None


def test_of_several_that_begin_alike_the_longest_is_found() -> None:
    chains = Chains(blocks=40)
    for i in range(1, 17):
        tokens = (*range(i), *range(1000 * i, 1000 * i + 16 - i))
        (block,) = chains.pool.allocate(1)
        digest = chains.cache.next_digest(b"", tokens)
        assert chains.cache.add(digest, None, b"", tokens, block) is not None
    for length in range(1, 16):
        found = chains.cache.find_start(None, b"", [*range(length), 77])
        assert found is not None
        assert found[1] == length
    chains.cache.check_integrity()


def test_digests_are_of_all_tokens_before_and_of_the_salt() -> None:
    one = chained_digest(b"", tokens_of(1))
    assert chained_digest(one, tokens_of(2)) != chained_digest(b"", tokens_of(2))
    assert chained_digest(salt_of("a"), tokens_of(1)) != one
    assert len({one, chained_digest(b"", tokens_of(2)), chained_digest(b"", tokens_of(1))}) == 2


@pytest.mark.parametrize("broken", ["parent", "index"])
def test_integrity_checks_see_a_broken_tree(broken: str) -> None:
    chains = Chains()
    _, entries = chains.add(1, 2)
    assert entries[0] is not None
    if broken == "parent":
        chains.pool.forget(entries[0].block)
    else:
        assert entries[1] is not None
        entries[0].children.remove(entries[1])
    with pytest.raises(AssertionError):
        chains.cache.check_integrity()
