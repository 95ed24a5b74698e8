"""A KV cache whose every slot knows which tokens led to it."""

from __future__ import annotations

from collections.abc import Sequence

from farthing.engine.block_pool import BLOCK_TOKENS

POISON = -1
"""A slot that holds nothing; no history hashes to it, for -1 is not the hash of anything."""


class CheckingStore:
    """Histories where a model has keys and values: slot ``block * BLOCK_TOKENS + offset``."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._slots = [POISON] * (num_blocks * BLOCK_TOKENS)
        self._writers = [""] * (num_blocks * BLOCK_TOKENS)
        self.dirty: set[int] = set()  # blocks that may hold something

    def block(self, block: int) -> list[int]:
        """What is in ``block``."""
        return self._slots[block * BLOCK_TOKENS : (block + 1) * BLOCK_TOKENS]

    def writers(self, block: int) -> set[str]:
        """Requests that computed what is in ``block``, if it was not copied there."""
        return set(self._writers[block * BLOCK_TOKENS : (block + 1) * BLOCK_TOKENS])

    def at(self, table: Sequence[int], position: int) -> int:
        """What the slot of ``position`` holds."""
        return self._slots[table[position // BLOCK_TOKENS] * BLOCK_TOKENS + position % BLOCK_TOKENS]

    def copy(self, source: int, target: int) -> None:
        """Copies a block, whatever is in it."""
        first, to = source * BLOCK_TOKENS, target * BLOCK_TOKENS
        self._slots[to : to + BLOCK_TOKENS] = self._slots[first : first + BLOCK_TOKENS]
        self._writers[to : to + BLOCK_TOKENS] = [""] * BLOCK_TOKENS
        self.dirty.add(target)

    def write(self, table: Sequence[int], start: int, values: Sequence[int], writer: str) -> None:
        """Stores ``values`` at positions from ``start`` on."""
        done = 0
        while done < len(values):
            index, offset = divmod(start + done, BLOCK_TOKENS)
            count = min(BLOCK_TOKENS - offset, len(values) - done)
            slot = table[index] * BLOCK_TOKENS + offset
            self._slots[slot : slot + count] = values[done : done + count]
            self._writers[slot : slot + count] = [writer] * count
            self.dirty.add(table[index])
            done += count

    def check_read(self, table: Sequence[int], chain: Sequence[int], end: int, name: str) -> None:
        """Asserts that positions ``0 .. end - 1`` hold ``chain``, as attention would read them."""
        slots = self._slots
        for first in range(0, end, BLOCK_TOKENS):
            count = min(BLOCK_TOKENS, end - first)
            slot = table[first // BLOCK_TOKENS] * BLOCK_TOKENS
            if slots[slot : slot + count] != chain[first : first + count]:
                position = next(p for p in range(first, end) if self.at(table, p) != chain[p])
                found = self.at(table, position)
                raise AssertionError(
                    f"request {name} reads at position {position}, block {slot // BLOCK_TOKENS}: "
                    + ("nothing" if found == POISON else "another history")
                )

    def poison(self, block: int) -> None:
        """Forgets what is in a block that nobody may read any more."""
        slot = block * BLOCK_TOKENS
        self._slots[slot : slot + BLOCK_TOKENS] = [POISON] * BLOCK_TOKENS
        self._writers[slot : slot + BLOCK_TOKENS] = [""] * BLOCK_TOKENS
        self.dirty.discard(block)
