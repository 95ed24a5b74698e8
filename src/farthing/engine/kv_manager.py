"""What a scheduler asks of whoever gives out the memory of the KV cache."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from farthing.engine.block_pool import BLOCK_TOKENS
from farthing.engine.request import Request

BlockCopy = tuple[int, int]
"""From which block to which. Those of a step are done in their order, before its pass."""


@dataclass(frozen=True, slots=True)
class KvUsage:
    """Where the memory of the KV cache is."""

    num_blocks: int = 0
    held_blocks: int = 0  # in block tables
    cached_blocks: int = 0  # in none, kept for their content
    reserved_tokens: int = 0  # that the block tables have room for, each for itself
    stored_tokens: int = 0  # of those, filled


def table_tokens(holders: Sequence[Request]) -> tuple[int, int]:
    """Tokens that the block tables of ``holders`` have room for, and those stored there."""
    reserved = sum(len(request.block_table) for request in holders) * BLOCK_TOKENS
    return reserved, sum(request.num_computed_tokens for request in holders)


class KvManager(Protocol):
    """Gives requests their block tables; sets ``num_computed_tokens`` where tokens are found."""

    @property
    def num_slots(self) -> int | None:
        """Requests that memory is reserved for; None: as many as their tokens allow."""

    @property
    def num_available(self) -> int:
        """Blocks that can be given out now."""

    def blocks_needed(self, request: Request) -> int:
        """Blocks for all that ``request`` may ever store."""

    def admit(self, request: Request, *, spare: int, reserve: bool) -> list[BlockCopy] | None:
        """Makes a waiting request's block table; None, and nothing done, without memory."""

    def extend(self, request: Request) -> bool:
        """Makes its table cover all its tokens. False, and nothing done, without memory."""

    def find_more(self, request: Request) -> int:
        """Takes what others have computed meanwhile; returns the tokens so spared."""

    def will_find(self, request: Request, computing: Collection[bytes]) -> bool:
        """Whether what it computes next is among what a step computes already."""

    def digests(self, request: Request, num_tokens: int) -> list[bytes]:
        """Names of the blocks that its next ``num_tokens`` tokens fill, as others will ask."""

    def publish(self, request: Request) -> None:
        """Lets others find its full blocks."""

    def discard(self, request: Request) -> None:
        """Lets nobody find what it has published: it may not be right."""

    def release(self, request: Request) -> None:
        """Returns its blocks; nothing counts as computed."""

    def usage(self, holders: Sequence[Request]) -> KvUsage:
        """Where its memory is; ``holders`` are all requests with a block table."""

    def check_integrity(self, tables: Sequence[Sequence[int]]) -> None:
        """Asserts that every block is accounted for, given all tables there are."""
