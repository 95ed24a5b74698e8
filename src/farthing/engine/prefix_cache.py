"""Full blocks of finished and running sequences, found again by the tokens that led to them."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice

from farthing.engine.block_pool import BLOCK_TOKENS, BlockPool

DIGEST_BYTES = 16

MOST_COMPARED = 16
"""Blocks with one first token that are compared with what a request goes on with."""


@dataclass(slots=True, eq=False)
class CachedBlock:
    """A full block whose keys and values can be read by whoever has the same tokens before it."""

    digest: bytes  # of the salt and all tokens up to its end
    tokens: tuple[int, ...]  # its own, BLOCK_TOKENS of them
    salt: bytes
    parent: CachedBlock | None  # what comes before it; None: the beginning
    block: int
    children: _Siblings = field(default_factory=lambda: _Siblings())

    def follows(self, parent: CachedBlock | None, salt: bytes, tokens: tuple[int, ...]) -> bool:
        """Whether it stands for ``tokens`` after ``parent``: equal digests alone do not say so."""
        return self.parent is parent and self.salt == salt and self.tokens == tokens


class _Siblings:
    """Blocks with one parent, by their first tokens, in order of arrival."""

    def __init__(self) -> None:
        self._by_first: dict[int, dict[CachedBlock, None]] = {}

    def __iter__(self) -> Iterator[CachedBlock]:
        for group in self._by_first.values():
            yield from group

    def __contains__(self, entry: CachedBlock) -> bool:
        return entry in self._by_first.get(entry.tokens[0], ())

    def add(self, entry: CachedBlock) -> None:
        self._by_first.setdefault(entry.tokens[0], {})[entry] = None

    def remove(self, entry: CachedBlock) -> None:
        group = self._by_first[entry.tokens[0]]
        del group[entry]
        if not group:
            del self._by_first[entry.tokens[0]]

    def longest_start(self, tokens: Sequence[int]) -> tuple[CachedBlock, int] | None:
        """The block whose first tokens are most of ``tokens``, and how many they are."""
        best: tuple[CachedBlock, int] | None = None
        latest = reversed(self._by_first.get(tokens[0], {})) if tokens else ()
        for entry in islice(latest, MOST_COMPARED):
            length = _common(entry.tokens, tokens)
            if best is None or length > best[1]:
                best = entry, length
        return best


def _common(left: Sequence[int], right: Sequence[int]) -> int:
    for index, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return index
    return min(len(left), len(right))


def chained_digest(before: bytes, tokens: Sequence[int]) -> bytes:
    """Digest of a block whose predecessor's (or the salt, for the first) is ``before``."""
    return blake2b(before + array("q", tokens).tobytes(), digest_size=DIGEST_BYTES).digest()


def salt_of(tenant: str) -> bytes:
    """What separates the blocks of one tenant from all others'. Does not disclose its name."""
    return blake2b(tenant.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES).digest()


class PrefixCache:
    """A tree of cached blocks over a :class:`BlockPool`, found by chained digests.

    A hit compares tokens, so a collision of digests costs a hit and never an answer. A block is in
    the tree once: who computes it again gets the one that is there, whose bits are the same. A
    table that names a block names all before it, and tables are released from their end, so what
    is evicted is always a leaf.
    """

    def __init__(
        self, pool: BlockPool, digest: Callable[[bytes, Sequence[int]], bytes] = chained_digest
    ) -> None:
        self._pool = pool
        self._digest = digest
        self._by_digest: dict[bytes, CachedBlock] = {}
        self._by_block: dict[int, CachedBlock] = {}
        self._roots: dict[bytes, _Siblings] = {}  # by salt
        pool.on_evict = self._evicted

    def __len__(self) -> int:
        """Blocks in the tree."""
        return len(self._by_block)

    @property
    def pool(self) -> BlockPool:
        """Whose blocks they are."""
        return self._pool

    def next_digest(self, before: bytes, tokens: Sequence[int]) -> bytes:
        """Digest of the block with ``tokens`` after the one with ``before``."""
        return self._digest(before, tokens)

    def find(
        self, digest: bytes, parent: CachedBlock | None, salt: bytes, tokens: tuple[int, ...]
    ) -> CachedBlock | None:
        """The block of ``tokens`` after ``parent``, if it is here."""
        found = self._by_digest.get(digest)
        if found is None or not found.follows(parent, salt, tokens):
            return None
        return found

    def add(
        self,
        digest: bytes,
        parent: CachedBlock | None,
        salt: bytes,
        tokens: tuple[int, ...],
        block: int,
    ) -> CachedBlock | None:
        """Puts a held, full block into the tree; returns what stands there for its tokens.

        That is another block if it was there before. None where another history has the same
        digest, or where ``parent`` is not here any more.
        """
        if parent is not None and self._by_block.get(parent.block) is not parent:
            return None
        found = self._by_digest.get(digest)
        if found is not None:
            return found if found.follows(parent, salt, tokens) else None
        entry = CachedBlock(digest, tokens, salt, parent, block)
        self._by_digest[digest] = entry
        self._by_block[block] = entry
        if parent is not None:
            parent.children.add(entry)
        else:
            self._roots.setdefault(salt, _Siblings()).add(entry)
        self._pool.keep(block)
        return entry

    def find_start(
        self, parent: CachedBlock | None, salt: bytes, tokens: Sequence[int]
    ) -> tuple[CachedBlock, int] | None:
        """A block after ``parent`` that begins as ``tokens`` do, and how many are the same."""
        siblings = self._roots.get(salt) if parent is None else parent.children
        return None if siblings is None else siblings.longest_start(tokens)

    def discard(self, entry: CachedBlock) -> None:
        """Takes a block, and all that follow it, out of the tree."""
        stack = [entry]
        while stack:
            entry = stack.pop()
            stack += entry.children
            if self._by_block.get(entry.block) is entry:
                self._remove(entry)
                self._pool.forget(entry.block)

    def clear(self) -> None:
        """Takes everything out of the tree."""
        for entry in self._all_roots():
            self.discard(entry)

    def entries(self) -> Iterator[CachedBlock]:
        """Every block, parents before children."""
        stack = self._all_roots()
        while stack:
            entry = stack.pop()
            yield entry
            stack += entry.children

    def by_use(self) -> Iterator[CachedBlock]:
        """Every block, parents before children: those in tables, then by the latest use."""
        for entry in self.entries():
            if not self._pool.is_cached(entry.block):
                yield entry
        for block in reversed(self._pool.cached()):
            yield self._by_block[block]

    def _all_roots(self) -> list[CachedBlock]:
        return [entry for roots in self._roots.values() for entry in roots]

    def _evicted(self, block: int) -> None:
        self._remove(self._by_block[block])

    def _remove(self, entry: CachedBlock) -> None:
        del self._by_block[entry.block]
        del self._by_digest[entry.digest]
        if entry.parent is not None:
            entry.parent.children.remove(entry)
            return
        roots = self._roots[entry.salt]
        roots.remove(entry)
        if not any(True for _ in roots):
            del self._roots[entry.salt]

    def check_integrity(self) -> None:
        """Asserts that tree, indices and pool agree. For tests and idle moments."""
        assert len(self._by_block) == len(self._by_digest)
        for block, entry in self._by_block.items():
            assert entry.block == block
            assert self._by_digest[entry.digest] is entry
            assert len(entry.tokens) == BLOCK_TOKENS
            assert self._pool.is_kept(block), "a block of the tree may be overwritten"
            parent = entry.parent
            if parent is not None:
                assert self._by_block.get(parent.block) is parent, "a block outlives its parent"
                assert entry in parent.children
                if self._pool.is_cached(parent.block):
                    assert self._pool.is_cached(block), "a table names a block without its parent"
            else:
                assert entry in self._roots[entry.salt]
            for child in entry.children:
                assert self._by_block.get(child.block) is child
        assert sum(1 for _ in self.entries()) == len(self._by_block)
