"""Who holds which block of the paged KV cache."""

from __future__ import annotations

from collections.abc import Iterable

from farthing.errors import FarthingError

BLOCK_TOKENS = 16
"""Tokens in one block: a constant of the numerics, not an option."""


def blocks_for(num_tokens: int) -> int:
    """Blocks that hold ``num_tokens`` tokens of one sequence."""
    return -(-num_tokens // BLOCK_TOKENS)


class BlockPool:
    """A fixed set of block ids ``0 .. num_blocks - 1``, each free or held by one sequence.

    Freed blocks are reused last-in first-out: their memory is already touched and may be cached.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._free = list(range(num_blocks - 1, -1, -1))
        self._held = [False] * num_blocks

    @property
    def num_free(self) -> int:
        """Blocks that can be allocated now."""
        return len(self._free)

    def allocate(self, count: int) -> list[int]:
        """Takes ``count`` blocks out of the pool.

        Raises :class:`FarthingError` when fewer are free; the caller asks ``num_free`` first.
        """
        if count > len(self._free):
            raise FarthingError(
                f"KV cache: {count} blocks asked for, {len(self._free)} of {self.num_blocks} free"
            )
        blocks = [self._free.pop() for _ in range(count)]
        for block in blocks:
            self._held[block] = True
        return blocks

    def free(self, blocks: Iterable[int]) -> None:
        """Returns blocks to the pool.

        Raises :class:`FarthingError` for a block that nobody holds (a double free).
        """
        for block in blocks:
            if not self._held[block]:
                raise FarthingError(f"KV cache: block {block} freed but not held")
            self._held[block] = False
            self._free.append(block)

    def check_integrity(self) -> None:
        """Asserts that every block is either free, once, or held. For tests and idle moments."""
        assert len(set(self._free)) == len(self._free), "a block is in the free list twice"
        assert not any(self._held[block] for block in self._free), "a free block is held"
        assert len(self._free) + sum(self._held) == self.num_blocks, "a block is lost"
