"""Blocks for sequences as they grow, shared where their tokens are the same."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from farthing.engine.block_pool import BLOCK_TOKENS, BlockPool, blocks_for
from farthing.engine.kv_manager import BlockCopy, KvUsage, table_tokens
from farthing.engine.prefix_cache import CachedBlock, PrefixCache
from farthing.engine.request import Request


@dataclass(frozen=True, slots=True)
class _Found:
    """What a request need not compute."""

    shared: list[int]  # whole blocks, for its table
    chain: list[CachedBlock]  # those of them that stand in the prefix cache
    num_tokens: int  # computed, those in ``source`` too
    source: int | None  # whose first tokens are the request's next: to be copied, for it is shared


class PagedKv:
    """Gives a request blocks as its tokens come; keeps full ones for others, and finds theirs.

    Without ``prefix_cache`` only choices of one prompt share blocks, and without
    ``shares_prompts``, when what is stored is computed again and again, not even they.
    """

    def __init__(
        self, pool: BlockPool, prefix_cache: PrefixCache | None, *, shares_prompts: bool = True
    ) -> None:
        self.pool = pool
        self.prefix_cache = prefix_cache
        self._shares_prompts = shares_prompts

    @property
    def num_slots(self) -> int | None:
        """Requests that memory is reserved for; None: as many as their tokens allow."""
        return None

    @property
    def num_available(self) -> int:
        """Blocks that can be given out now."""
        return self.pool.num_available

    def blocks_needed(self, request: Request) -> int:
        """Blocks for all that ``request`` may ever store."""
        return blocks_for(request.most_stored_tokens)

    def admit(self, request: Request, *, spare: int, reserve: bool) -> list[BlockCopy] | None:
        """Blocks for all tokens that ``request`` has; those found count as computed.

        ``reserve``: for all that it may ever store. ``spare`` blocks stay available to others.
        None, and nothing done, where memory does not allow it. A copy's source is not held: what is
        taken from here on is written after the copies of the step.
        """
        found = self._find(request)
        whole = self.blocks_needed(request) if reserve else blocks_for(request.num_tokens)
        own = whole - len(found.shared)
        revived = sum(self.pool.is_cached(block) for block in found.shared)
        if own + revived + spare > self.pool.num_available:
            return None
        for block in found.shared:
            self.pool.share(block)
        request.block_table = [*found.shared, *self.pool.allocate(own)]
        request.chain = found.chain
        request.shares = self.prefix_cache is not None and len(found.chain) == len(found.shared)
        request.num_computed_tokens = found.num_tokens
        if found.source is None:
            return []
        return [(found.source, request.block_table[len(found.shared)])]

    def _find(self, request: Request) -> _Found:
        """What others have computed of ``request``, up to its last token at most."""
        leader = request.leader if self._shares_prompts else None
        if leader is not None and leader.has_stored_prompt and not request.output_token_ids:
            tokens = request.num_prompt_tokens - 1
            last = tokens // BLOCK_TOKENS
            table = leader.block_table
            return _Found(table[:last], leader.chain[:last], tokens, table[last])
        chain: list[CachedBlock] = []
        if self.prefix_cache is None:
            return _Found([], chain, 0, None)
        while (entry := self._next_cached(request, chain)) is not None:
            chain.append(entry)
        shared = [entry.block for entry in chain]
        start = len(chain) * BLOCK_TOKENS
        rest = request.tokens(start, min(start + BLOCK_TOKENS, _most_found(request)))
        parent = chain[-1] if chain else None
        begun = self.prefix_cache.find_start(parent, request.salt, rest)
        if begun is None:
            return _Found(shared, chain, start, None)
        return _Found(shared, chain, start + begun[1], begun[0].block)

    def _next_cached(self, request: Request, chain: Sequence[CachedBlock]) -> CachedBlock | None:
        """The cached block that follows ``chain`` in the tokens of ``request``."""
        assert self.prefix_cache is not None
        index = len(chain)
        if (index + 1) * BLOCK_TOKENS > _most_found(request):
            return None
        digest = self._digest(request, index)
        parent = chain[-1] if chain else None
        return self.prefix_cache.find(digest, parent, request.salt, _tokens(request, index))

    def _digest(self, request: Request, index: int) -> bytes:
        assert self.prefix_cache is not None
        digests = request.digests
        for i in range(len(digests), index + 1):
            before = digests[-1] if digests else request.salt
            digests.append(self.prefix_cache.next_digest(before, _tokens(request, i)))
        return digests[index]

    def extend(self, request: Request) -> bool:
        """Blocks for all its tokens. False, and nothing done, where memory does not allow it."""
        missing = blocks_for(request.num_tokens) - len(request.block_table)
        if missing <= 0:
            return True
        if missing > self.pool.num_available:
            return False
        request.block_table += self.pool.allocate(missing)
        return True

    def find_more(self, request: Request) -> int:
        """Takes what others have computed meanwhile; returns the tokens that are so spared.

        The last token stays to be computed.
        """
        spared = 0
        while (
            request.shares
            and request.num_computed_tokens == len(request.chain) * BLOCK_TOKENS
            and (entry := self._next_cached(request, request.chain)) is not None
        ):
            self._replace(request, entry)
            request.num_computed_tokens += BLOCK_TOKENS
            spared += BLOCK_TOKENS
        return spared

    def will_find(self, request: Request, computing: Collection[bytes]) -> bool:
        """Whether the next block of ``request`` is among the digests that a step computes."""
        index = len(request.chain)
        return (
            request.shares
            and request.num_computed_tokens == index * BLOCK_TOKENS
            and (index + 1) * BLOCK_TOKENS <= _most_found(request)
            and self._digest(request, index) in computing
        )

    def digests(self, request: Request, num_tokens: int) -> list[bytes]:
        """Digests of the blocks that ``num_tokens`` more tokens of ``request`` fill."""
        if not request.shares:
            return []
        first = request.num_computed_tokens // BLOCK_TOKENS
        end = (request.num_computed_tokens + num_tokens) // BLOCK_TOKENS
        return [self._digest(request, index) for index in range(first, end)]

    def publish(self, request: Request) -> None:
        """Puts its full blocks into the prefix cache; takes those that are there already."""
        chain = request.chain
        full = request.num_computed_tokens // BLOCK_TOKENS
        while request.shares and len(chain) < full:
            assert self.prefix_cache is not None
            index = len(chain)
            block = request.block_table[index]
            entry = self.prefix_cache.add(
                self._digest(request, index),
                chain[-1] if chain else None,
                request.salt,
                _tokens(request, index),
                block,
            )
            if entry is None:
                request.shares = False
            elif entry.block == block:
                chain.append(entry)
                request.published.append(entry)
            else:
                self._replace(request, entry)

    def _replace(self, request: Request, entry: CachedBlock) -> None:
        """Takes a cached block in the place of the request's own next one."""
        index = len(request.chain)
        self.pool.share(entry.block)
        self.pool.release([request.block_table[index]])
        request.block_table[index] = entry.block
        request.chain.append(entry)

    def discard(self, request: Request) -> None:
        """Takes what ``request`` has published out of the prefix cache: it may not be right."""
        if self.prefix_cache is not None:
            for entry in request.published:
                self.prefix_cache.discard(entry)
        request.published = []
        request.shares = False

    def release(self, request: Request) -> None:
        """Returns the blocks of ``request``. What it has published stays its own to discard."""
        self.pool.release(request.block_table)
        request.block_table = []
        request.chain = []
        request.num_computed_tokens = 0

    def usage(self, holders: Sequence[Request]) -> KvUsage:
        """Where its memory is; ``holders`` are all requests with a block table."""
        pool = self.pool
        return KvUsage(
            pool.num_blocks,
            pool.num_blocks - pool.num_available,
            pool.num_cached,
            *table_tokens(holders),
        )

    def check_integrity(self, tables: Sequence[Sequence[int]]) -> None:
        """Asserts that pool and prefix cache agree with ``tables``, all there are."""
        self.pool.check_integrity(tables)
        if self.prefix_cache is not None:
            self.prefix_cache.check_integrity()


def _most_found(request: Request) -> int:
    """Tokens that may be found instead of computed.

    The last is computed for its logits, and so are rows of the prompt whose log probabilities are
    still wanted.
    """
    if request.wanted_prompt_logprobs > 0:
        return request.num_prompt_logprobs
    return request.num_tokens - 1


def _tokens(request: Request, index: int) -> tuple[int, ...]:
    return tuple(request.tokens(index * BLOCK_TOKENS, (index + 1) * BLOCK_TOKENS))
