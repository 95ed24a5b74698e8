"""Schedulers over plain requests, and steps played with made-up tokens."""

from __future__ import annotations

from collections.abc import Callable

from farthing.engine.block_pool import BlockPool
from farthing.engine.contiguous_kv import ContiguousKv
from farthing.engine.kv_manager import KvManager, KvUsage
from farthing.engine.paged_kv import PagedKv
from farthing.engine.prefix_cache import PrefixCache
from farthing.engine.request import Request
from farthing.engine.schedule import Schedule
from farthing.engine.scheduler import Scheduler, SchedulerConfig
from farthing.sampling.params import SamplingParams

EOS = 7


def make_request(
    name: str,
    prompt: int | tuple[int, ...],
    max_tokens: int = 4,
    *,
    prompt_logprobs: int | None = None,
    user: str = "",
    priority: int = 0,
    salt: bytes = b"",
) -> Request:
    """A request with a prompt, or one of its own with so many tokens."""
    if isinstance(prompt, int):
        first = 1000 * (1 + sum(name.encode()))
        prompt = tuple(range(first, first + prompt))
    return Request(
        request_id=name,
        prompt_token_ids=prompt,
        params=SamplingParams(prompt_logprobs=prompt_logprobs),
        stop_token_ids=frozenset({EOS}),
        max_tokens=max_tokens,
        seed=0,
        user=user,
        priority=priority,
        salt=salt,
    )


def with_choices(request: Request, count: int) -> list[Request]:
    """``request`` and its followers, ``count`` in all."""
    for choice in range(1, count):
        follower = make_request(
            f"{request.request_id}-{choice}", request.prompt_token_ids, request.max_tokens
        )
        follower.choice, follower.leader, follower.user = choice, request, request.user
        request.followers.append(follower)
    return [request, *request.followers]


def make_scheduler(
    blocks: int = 64,
    *,
    prefix_caching: bool = True,
    contiguous: int | None = None,
    max_num_seqs: int = 8,
    max_num_batched_tokens: int = 32,
    **config: object,
) -> Scheduler:
    """A scheduler over a pool; ``contiguous``: with slots for so many tokens."""
    kv: KvManager
    if contiguous is None:
        pool = BlockPool(blocks)
        kv = PagedKv(pool, PrefixCache(pool) if prefix_caching else None)
    else:
        kv = ContiguousKv(blocks, contiguous)
    return Scheduler(
        kv,
        SchedulerConfig(
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            **config,  # type: ignore[arg-type]
        ),
    )


def token_after(request: Request) -> int:
    """A token that depends on the request and on how long it is."""
    return 10 + (len(request.request_id) * 31 + request.num_tokens * 7) % 500


def advance(
    scheduler: Scheduler, now: float = 0.0, token: Callable[[Request], int] = token_after
) -> Schedule:
    """One step, in which every row that samples gives ``token`` of its request."""
    step = scheduler.schedule(now)
    assert sum(rows.num_tokens for rows in step.rows) <= scheduler.config.max_num_batched_tokens
    ids = [rows.request.request_id for rows in step.rows]
    assert len(set(ids)) == len(ids), "a request has two pieces of one step"
    for rows in step.rows:
        scheduler.update(rows, token(rows.request) if rows.samples else None)
    scheduler.check_integrity()
    return step


def play(
    scheduler: Scheduler, token: Callable[[Request], int] = token_after, limit: int = 10_000
) -> list[Schedule]:
    """Steps to the end."""
    steps: list[Schedule] = []
    while scheduler.has_work:
        steps.append(advance(scheduler, float(len(steps)), token))
        assert steps[-1], "work is left but nothing is scheduled"
        assert len(steps) < limit
    return steps


def usage(scheduler: Scheduler) -> KvUsage:
    """Where the memory of its cache is."""
    return scheduler.kv.usage(scheduler.holders())
