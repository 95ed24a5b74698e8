"""Who holds which block of the paged KV cache."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

from farthing.errors import FarthingError

BLOCK_TOKENS = 16
"""Tokens in one block: a constant of the numerics, not an option."""


def blocks_for(num_tokens: int) -> int:
    """Blocks that hold ``num_tokens`` tokens of one sequence."""
    return -(-num_tokens // BLOCK_TOKENS)


class BlockPool:
    """A fixed set of block ids ``0 .. num_blocks - 1`` with a count of the tables that name each.

    A block is *free*; *held*, by one block table or several; or *cached*: in no table, kept for
    what it contains until its memory is needed. The least recently released goes first, and
    ``on_evict`` is told. Free blocks are reused last-in first-out: their memory is touched already.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.on_evict: Callable[[int], None] = lambda block: None
        self._free = list(range(num_blocks - 1, -1, -1))
        self._references = [0] * num_blocks
        self._kept = [False] * num_blocks
        self._cached: OrderedDict[int, None] = OrderedDict()  # least recently released first

    @property
    def num_free(self) -> int:
        """Blocks that are in no table and contain nothing worth keeping."""
        return len(self._free)

    @property
    def num_cached(self) -> int:
        """Blocks that are in no table and kept for their content."""
        return len(self._cached)

    @property
    def num_available(self) -> int:
        """Blocks that can be allocated now."""
        return len(self._free) + len(self._cached)

    def references(self, block: int) -> int:
        """Tables that name ``block``."""
        return self._references[block]

    def is_kept(self, block: int) -> bool:
        """Whether others may find the content of ``block``, which then must not change."""
        return self._kept[block]

    def is_cached(self, block: int) -> bool:
        """Whether ``block`` is kept and in no table."""
        return block in self._cached

    def cached(self) -> list[int]:
        """The blocks that are cached, in the order in which they will be evicted."""
        return list(self._cached)

    def allocate(self, count: int) -> list[int]:
        """Takes ``count`` blocks for one table, free ones first, then the least recently used.

        Raises :class:`FarthingError` when fewer are available; the caller asks first.
        """
        if count > self.num_available:
            raise FarthingError(
                f"KV cache: {count} blocks asked for, {self.num_available} of {self.num_blocks} "
                "available"
            )
        return [self._take() for _ in range(count)]

    def _take(self) -> int:
        if self._free:
            block = self._free.pop()
        else:
            block, _ = self._cached.popitem(last=False)
            self._kept[block] = False
            self.on_evict(block)
        self._references[block] = 1
        return block

    def share(self, block: int) -> None:
        """Notes one table more that names ``block``.

        Raises :class:`FarthingError` for a free block.
        """
        if self._references[block] == 0:
            if block not in self._cached:
                raise FarthingError(f"KV cache: block {block} shared but free")
            del self._cached[block]
        self._references[block] += 1

    def release(self, table: Sequence[int]) -> None:
        """Takes every block of a table out of it, the last first, so that it is evicted first.

        Raises :class:`FarthingError` for a block that no table names (a double free).
        """
        for block in reversed(table):
            if self._references[block] == 0:
                raise FarthingError(f"KV cache: block {block} released but not held")
            self._references[block] -= 1
            if self._references[block] > 0:
                continue
            if self._kept[block]:
                self._cached[block] = None
            else:
                self._free.append(block)

    def keep(self, block: int) -> None:
        """Keeps the content of a held block after its last table has gone."""
        if self._references[block] == 0:
            raise FarthingError(f"KV cache: block {block} kept but not held")
        self._kept[block] = True

    def forget(self, block: int) -> None:
        """Keeps the content of ``block`` no longer; no ``on_evict``."""
        self._kept[block] = False
        if block in self._cached:
            del self._cached[block]
            self._free.append(block)

    def check_integrity(self, tables: Sequence[Sequence[int]]) -> None:
        """Asserts that counts equal what ``tables``, all there are, name, and nothing is lost.

        For tests and idle moments: it visits every block.
        """
        named = [0] * self.num_blocks
        for table in tables:
            for block in table:
                named[block] += 1
        assert named == self._references, "a count of references is not what the tables name"
        free = set(self._free)
        assert len(free) == len(self._free), "a block is on the free list twice"
        held = {block for block, count in enumerate(self._references) if count}
        cached = set(self._cached)
        assert len(free | held | cached) == self.num_blocks, "a block is lost"
        assert len(free) + len(held) + len(cached) == self.num_blocks, "a block is two things"
        assert all(self._kept[block] for block in cached), "a cached block is not kept"
        assert not any(self._kept[block] for block in free), "a free block is kept"
