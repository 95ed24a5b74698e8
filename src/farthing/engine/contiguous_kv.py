"""A cache as it was before paging: each slot holds the longest sequence there may be."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from farthing.engine.block_pool import blocks_for
from farthing.engine.kv_manager import BlockCopy, KvUsage, table_tokens
from farthing.engine.request import Request
from farthing.errors import InsufficientMemoryError


class ContiguousKv:
    """Slots of consecutive blocks, each for ``max_model_len`` tokens, reserved whole.

    The kernels are those of the paged cache; nothing is shared. What the chapter compares paging
    with. Raises :class:`InsufficientMemoryError` if not one slot fits.
    """

    def __init__(self, num_blocks: int, max_model_len: int) -> None:
        self.num_blocks = num_blocks
        self.slot_blocks = blocks_for(max_model_len)
        slots = num_blocks // self.slot_blocks
        if slots == 0:
            raise InsufficientMemoryError(
                f"KV cache: a contiguous slot for {max_model_len} tokens takes {self.slot_blocks} "
                f"blocks, there are {num_blocks}"
            )
        self._num_slots = slots
        self._free = list(range(slots - 1, -1, -1))

    @property
    def num_slots(self) -> int | None:
        """Requests that memory is reserved for."""
        return self._num_slots

    @property
    def num_available(self) -> int:
        """Blocks of free slots."""
        return len(self._free) * self.slot_blocks

    def blocks_needed(self, request: Request) -> int:
        """Blocks of a slot, whatever the request."""
        return self.slot_blocks

    def admit(self, request: Request, *, spare: int, reserve: bool) -> list[BlockCopy] | None:
        """A slot, if one is free."""
        if not self._free:
            return None
        start = self._free.pop() * self.slot_blocks
        request.block_table = list(range(start, start + self.slot_blocks))
        request.num_computed_tokens = 0
        return []

    def extend(self, request: Request) -> bool:
        """True: a slot has room for the longest sequence."""
        return True

    def find_more(self, request: Request) -> int:
        """0: nothing is shared."""
        return 0

    def will_find(self, request: Request, computing: Collection[bytes]) -> bool:
        """False: nothing is shared."""
        return False

    def digests(self, request: Request, num_tokens: int) -> list[bytes]:
        """None: nothing is shared."""
        return []

    def publish(self, request: Request) -> None:
        """Nothing is shared."""

    def discard(self, request: Request) -> None:
        """Nothing is shared."""

    def release(self, request: Request) -> None:
        """Returns the slot."""
        if request.block_table:
            self._free.append(request.block_table[0] // self.slot_blocks)
        request.block_table = []
        request.num_computed_tokens = 0

    def usage(self, holders: Sequence[Request]) -> KvUsage:
        """Where its memory is; ``holders`` are all requests with a block table."""
        held = (self._num_slots - len(self._free)) * self.slot_blocks
        return KvUsage(self.num_blocks, held, 0, *table_tokens(holders))

    def check_integrity(self, tables: Sequence[Sequence[int]]) -> None:
        """Asserts that every slot is free, once, or in one table."""
        held = [table[0] // self.slot_blocks for table in tables if table]
        assert sorted([*held, *self._free]) == list(range(self._num_slots)), "a slot is lost"
